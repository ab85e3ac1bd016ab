"""Maintains the lake with the Dagster definitions of production, tick by tick."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

from iceberg_maint.config.load import CONFIG_VARIABLE
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.demo.in_process import InProcessDagster, Requested
from iceberg_maint.demo.workspace import Place
from iceberg_maint.runner.runtime import Runtime

MAX_TICKS = 10
"""Ticks at most. The daemon would continue, but a lake that needs more has a fault."""

Step = Callable[[int, Requested, bool, tuple[Record, ...]], None]
"""Called after each run with the tick, the request, whether the run succeeded in Dagster, and the ledger's
records of it."""


@dataclass(slots=True)
class Healing:
    """The runs of a demo. `settled`: the last tick requested nothing."""

    ticks: int = 0
    settled: bool = False
    records: list[Record] = field(default_factory=list)
    failed_runs: list[str] = field(default_factory=list)


def open_in_process(runtime: Runtime, place: Place, *, housekeeping: bool = False) -> InProcessDagster:
    """The production definitions on the lake's Dagster instance, with `housekeeping` or for the data only.

    Sets this process's environment variables to the lake, as `make dev` does for the daemon.
    """
    # Dagster warns of partitioned checks and of our automation sensor. We use both on purpose.
    warnings.filterwarnings("ignore", message=r".*is currently in (preview|beta).*")
    os.environ[CONFIG_VARIABLE] = str(place.config)
    os.environ["DAGSTER_HOME"] = str(place.dagster_home)
    # Imported here, because the import builds the definitions from the environment.
    from iceberg_maint.code_location import definitions_from

    defs = definitions_from(os.environ)
    return InProcessDagster(defs, place.dagster_home, runtime.tables(), housekeeping=housekeeping)


def heal(runtime: Runtime, dagster: InProcessDagster, step: Step) -> Healing:
    """Evaluates automation and runs its requests until there are none."""
    healing = Healing()
    while not healing.settled and healing.ticks < MAX_TICKS:
        healing.settled = not heal_once(runtime, dagster, healing, step)
    return healing


def heal_once(runtime: Runtime, dagster: InProcessDagster, healing: Healing, step: Step) -> bool:
    """One tick: evaluates automation and runs its requests. Returns whether there were any."""
    healing.ticks += 1
    requested = dagster.tick()
    for request in requested:
        _run(runtime, dagster, request, healing, step)
    return bool(requested)


def _run(
    runtime: Runtime, dagster: InProcessDagster, request: Requested, healing: Healing, step: Step
) -> None:
    result = dagster.run(request.table, request.partitions)
    known = {r.record_id for r in healing.records}
    records = tuple(
        r
        for r in reversed(runtime.ledger.records(str(request.table), 100))
        if r.run_id.startswith(result.run_id) and r.record_id not in known
    )
    healing.records += records
    if not result.success:
        healing.failed_runs.append(result.run_id)
    step(healing.ticks, request, result.success, records)
