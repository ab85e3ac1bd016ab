"""Heals the lake through the Dagster definitions that production runs, tick by tick."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

from iceberg_maint.config.load import CONFIG_VARIABLE
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.demo.in_process import InProcessDagster, Requested
from iceberg_maint.demo.workspace import Place
from iceberg_maint.wiring import App

MAX_TICKS = 10
"""A lake that is not healed by then is not going to be; the daemon would go on."""

Step = Callable[[int, Requested, bool, tuple[Record, ...]], None]
"""Told after each run: the tick, what was requested, whether Dagster calls the run a success, and
the ledger's records of it."""


@dataclass(slots=True)
class Healing:
    """What happened. `settled` says whether a tick came that requested nothing."""

    ticks: int = 0
    settled: bool = False
    records: list[Record] = field(default_factory=list)
    failed_runs: list[str] = field(default_factory=list)


def open_in_process(app: App, place: Place, *, housekeeping: bool = False) -> InProcessDagster:
    """The production definitions on the lake's own Dagster instance, with `housekeeping` or for the
    data alone.

    Points this process's environment at the lake, as `make dev` does for the daemon.
    """
    # Dagster says so of partitioned checks and of our automation sensor; both are chosen knowingly.
    warnings.filterwarnings("ignore", message=r".*is currently in (preview|beta).*")
    os.environ[CONFIG_VARIABLE] = str(place.config)
    os.environ["DAGSTER_HOME"] = str(place.dagster_home)
    # Not earlier: importing the module builds the definitions from the environment.
    from iceberg_maint.definitions import definitions_from

    defs = definitions_from(os.environ)
    return InProcessDagster(defs, place.dagster_home, app.tables(), housekeeping=housekeeping)


def heal(app: App, dagster: InProcessDagster, step: Step) -> Healing:
    """Evaluates automation and runs what it requests, until it requests nothing."""
    healing = Healing()
    while not healing.settled and healing.ticks < MAX_TICKS:
        healing.settled = not heal_once(app, dagster, healing, step)
    return healing


def heal_once(app: App, dagster: InProcessDagster, healing: Healing, step: Step) -> bool:
    """One tick: evaluates automation and runs what it requests. Whether it requested anything."""
    healing.ticks += 1
    requested = dagster.tick()
    for request in requested:
        _run(app, dagster, request, healing, step)
    return bool(requested)


def _run(app: App, dagster: InProcessDagster, request: Requested, healing: Healing, step: Step) -> None:
    done = dagster.run(request.table, request.partitions)
    known = {r.record_id for r in healing.records}
    records = tuple(
        r
        for r in reversed(app.ledger.records(str(request.table), 100))
        if r.run_id.startswith(done.run_id) and r.record_id not in known
    )
    healing.records += records
    if not done.success:
        healing.failed_runs.append(done.run_id)
    step(healing.ticks, request, done.success, records)
