"""Runs of a table that Dagster launched in another environment than its own: reported to it over Dagster Pipes.

Events are messages of the form of `message_of`, and log lines those of Pipes. The instance of the launching Dagster is
out of reach. What this side must know of it, the launch gives (`Launch`); everything else it finds in the ledger.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import dagster as dg
from dagster_pipes import PipesContext, open_dagster_pipes
from dagster_shared.serdes import serialize_value

from iceberg_maint import __version__
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import ALL_OPERATIONS, DATA_OPERATIONS, PartitionKey, TableId
from iceberg_maint.defs.assets.data_run import MaintenanceRun
from iceberg_maint.defs.assets.housekeeping_run import HousekeepingRun
from iceberg_maint.defs.automation.due_work import due_work, unknown_partitions
from iceberg_maint.defs.names import STDIN, TABLE_TAG
from iceberg_maint.defs.runs.run_context import ReportContext
from iceberg_maint.defs.runs.table_report import TableReports
from iceberg_maint.defs.runs.table_run import RunLimits
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.errors import EXIT_DONE, EXIT_FAILED, EXIT_UNKNOWN, IcebergMaintError
from iceberg_maint.loop.assess import Assessment
from iceberg_maint.loop.context import Context

_LAUNCH = ("DAGSTER_PIPES_CONTEXT", "DAGSTER_PIPES_MESSAGES")
INTERRUPT = dg.DagsterExecutionInterruptedError
"""What a signal must raise in a run, which then ends in order."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What the launching Dagster says of its run.

    `partitions` are those of the run, None for a run without a partition key. `known`, `materialized` and `failing` are
    partitions of the asset there: all of them, those that are materialized, and those with a failed check. Without
    `materializes` the run has checks only.
    """

    run_id: str
    housekeeping: bool = False
    materializes: bool = True
    retry_number: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)
    partitions: tuple[str, ...] | None = None
    known: frozenset[str] = frozenset()
    materialized: frozenset[str] = frozenset()
    failing: frozenset[str] = frozenset()

    @classmethod
    def of(cls, pipes: PipesContext) -> Launch:
        """The launch that a process was started with."""
        said = pipes.extras
        partitions = said.get("partitions")
        known, materialized, failing = (
            frozenset(said.get(name, ())) for name in ("known", "materialized", "failing")
        )
        return cls(
            pipes.run_id,
            bool(said.get("housekeeping", False)),
            bool(said.get("materializes", True)),
            pipes.retry_number,
            dict(said.get("tags", {})),
            None if partitions is None else tuple(partitions),
            known,
            materialized,
            failing,
        )


class Messages:
    """The numbered messages of a process. The last one is that of `end`, so that a lost one is noticed."""

    def __init__(self, pipes: PipesContext) -> None:
        self._pipes, self._numbers = pipes, count(1)

    def send(self, content: Mapping[str, object]) -> None:
        """Sends one message."""
        self._pipes.report_custom_message({"number": next(self._numbers), **content})

    def end(self, outcome: str, text: str = "", seconds: float | None = None) -> None:
        """Sends how the run ended: `done`, `failed`, `stopped` by a signal, or `retry` after so many seconds."""
        self.send({"kind": "ended", "outcome": outcome, "text": text, "seconds": seconds})


def message_of(event: object, housekeeping: dg.AssetKey) -> dict[str, object]:
    """An event as the content of a message. Raises TypeError for another object than the three events of a run."""
    match event:
        case dg.AssetMaterialization() | dg.AssetObservation():
            kind = "materialization" if isinstance(event, dg.AssetMaterialization) else "observation"
            own: dict[str, object] = {}
        case dg.AssetCheckEvaluation():
            kind = "check"
            own = {"name": event.check_name, "passed": event.passed, "severity": event.severity.value}
        case _:
            raise TypeError(f"{type(event).__name__} is no event of a run")
    return {
        "kind": kind,
        "housekeeping": event.asset_key == housekeeping,
        "partition": event.partition,
        "description": event.description,
        "metadata": serialize_value(dict[str, Any](event.metadata)),
        **own,
    }


class PipedContext:
    """The context of such a run, as `RunContext` has it. Its instance is empty and ends with the process."""

    has_partition_key = False

    def __init__(
        self,
        launch: Launch,
        pipes: PipesContext,
        messages: Messages,
        table: TableId,
        translator: IcebergTranslator,
    ) -> None:
        self._messages, self._housekeeping = messages, translator.get_housekeeping_key(table)
        self.log = pipes.log
        self.instance = dg.DagsterInstance.ephemeral()
        self.retry_number = launch.retry_number
        own = self._housekeeping if launch.housekeeping else translator.get_asset_key(table)
        self.selected_asset_keys = frozenset({own} if launch.materializes else ())
        self.has_partition_key_range = launch.partitions is not None
        self.partition_keys: Sequence[str] = launch.partitions or ()
        tags = {**launch.tags, TABLE_TAG: str(table)}
        self.run = dg.DagsterRun(job_name="pipes", run_id=launch.run_id, tags=tags)

    def log_event(self, event: Any) -> None:
        """Sends the event."""
        self._messages.send(message_of(event, self._housekeeping))


class PipedReports(TableReports):
    """Reports of a table to a Dagster of which only a `Launch` is known. A message says what else it must know: partitions, and
    what is due."""

    def __init__(
        self,
        context: ReportContext,
        loop_context: Context,
        translator: IcebergTranslator,
        launch: Launch,
        messages: Messages,
    ) -> None:
        super().__init__(context, loop_context, translator)
        self._launch, self._messages = launch, messages

    def _materialized(self, key: dg.AssetKey) -> Collection[str]:  # noqa: ARG002 - the launch is of one asset
        return self._launch.materialized

    def _sync_partitions(self, measured: Measured) -> None:
        """Leaves it to the other side."""

    def _log_health(self, assessment: Assessment, *arguments: Any, **named: Any) -> bool:
        """Says first which partitions the asset must have, and what is due now by policy, history and pauses."""
        table, health = assessment.state.table, self._loop_context.ledger.health
        partitions = assessment.only(DATA_OPERATIONS).measured.partitions
        known = frozenset(map(PartitionKey, self._launch.known))
        gone = known & {
            *health.retired_partitions(table),
            *unknown_partitions(self._loop_context, table, known),
        }
        work = due_work(self._loop_context, table)
        found = {d.operation for d in assessment.decisions if any(p.findings for p in d.partitions)}
        self._messages.send(
            {
                "kind": "health",
                "partitions": sorted(partitions),
                "gone": sorted(gone - set(partitions)),
                "due": dict(work.partitions),
                "due_operations": [o.value for o in work.allowed if o in found],
                "sentence": work.sentence,
            }
        )
        return super()._log_health(assessment, *arguments, **named)

    def _stale(self, assessment: Assessment) -> list[PartitionKey]:
        """The unhealthy partitions, and those that fail a check where Dagster is."""
        failing = [PartitionKey(key) for key in sorted(self._launch.failing)]
        return list(dict.fromkeys([*super()._stale(assessment), *failing]))


def report_run(
    start: Callable[[], AbstractContextManager[Context]], name: str, limits: RunLimits | None
) -> int:
    """Maintains the table of this name within the limits, or without them observes it, as the Dagster says that launched this
    process. Returns an exit code.

    `start` gives the context, within which a signal raises `INTERRUPT`. Every error is a message too.
    """
    with open_dagster_pipes() as pipes:
        # A process of this one is none that Dagster launched.
        for variable in _LAUNCH:
            os.environ.pop(variable, None)
        messages, asked = Messages(pipes), threading.Event()
        messages.send({"kind": "started", "version": __version__})
        if pipes.extras.get(STDIN):
            threading.Thread(target=_obey_parent, args=(asked,), name="stdin", daemon=True).start()
        try:
            with start() as context:
                run = _PipedRun(context, context.catalogs.find(name), pipes, messages)
                return (
                    run.observe()
                    if limits is None
                    else run.maintain(replace(limits, must_yield=asked.is_set))
                )
        except IcebergMaintError as why:
            messages.end("failed", str(why))
            return why.exit_code
        except INTERRUPT as stop:
            messages.end("stopped", str(stop))
            return EXIT_FAILED


def _obey_parent(asked_to_yield: threading.Event) -> None:
    """Takes whatever stdin says as the wish that no further batch starts, and its end as that this process stops in order."""
    while os.read(0, 1024):
        asked_to_yield.set()
    os.kill(os.getpid(), signal.SIGTERM)


class _PipedRun:
    """One run of one table."""

    def __init__(self, context: Context, table: TableId, pipes: PipesContext, messages: Messages) -> None:
        self._context, self._table, self._messages = context, table, messages
        self._launch, self._translator = Launch.of(pipes), IcebergTranslator()
        self._own = PipedContext(self._launch, pipes, messages, table, self._translator)

    def observe(self) -> int:
        """Reports the health of the table. A table that cannot be read fails its check, and not the run."""
        reports = self._reports(self._own, self._context, self._translator)
        try:
            reports.report(self._table)
        except Exception as why:  # noqa: BLE001 - it is what the check reports
            reports.report_unreadable(self._table, why)
        self._messages.end("done")
        return EXIT_DONE

    def maintain(self, limits: RunLimits) -> int:
        """Does the work that the code location of this project does in an op."""
        kind = HousekeepingRun if self._launch.housekeeping else MaintenanceRun
        try:
            run = kind(self._own, self._table, self._context, self._translator, self._reports)
            run.limits = limits
            run()
        except dg.RetryRequested as retry:
            self._messages.end("retry", str(retry.__cause__ or ""), retry.seconds_to_wait)
            return EXIT_FAILED
        except dg.Failure as failure:
            self._drop_unknown()
            self._messages.end("failed", failure.description or "")
            cause = failure.__cause__
            return cause.exit_code if isinstance(cause, IcebergMaintError) else self._failed()
        self._messages.end("done")
        return EXIT_DONE

    def _reports(self, context: ReportContext, loop: Context, translator: IcebergTranslator) -> PipedReports:
        return PipedReports(context, loop, translator, self._launch, self._messages)

    def _drop_unknown(self) -> None:
        requested = map(PartitionKey, self._launch.partitions or ())
        if unknown := unknown_partitions(self._context, self._table, requested):
            self._messages.send({"kind": "gone", "partitions": sorted(unknown)})

    def _failed(self) -> int:
        health = self._context.ledger.health
        measured = health.get(self._table)
        uuids = {} if measured is None else {measured.table_uuid: str(self._table)}
        waits = any(history.unknown_commits for history in health.histories(uuids, ALL_OPERATIONS).values())
        return EXIT_UNKNOWN if waits else EXIT_FAILED
