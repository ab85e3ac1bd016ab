"""Dagster without its daemon on the demo lake, and the verdict on each table before and after."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import dagster as dg

from iceberg_maint.config.load import CONFIG_VARIABLE
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import (
    ALL_OPERATIONS,
    DATA_OPERATIONS,
    HOUSEKEEPING_OPERATIONS,
    Operation,
    TableId,
)
from iceberg_maint.core.model.reasons import Decision, Verdict
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.core.removal.orphan_rules import RetainedOrphans
from iceberg_maint.defs.names import ENGINE_TAG, OBSERVE_JOB
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.demo.duckdb_reader import Comparison
from iceberg_maint.demo.tables import CONTROL, DemoTable
from iceberg_maint.demo.workspace import Place
from iceberg_maint.loop.assess import assess
from iceberg_maint.loop.context import Context

_RANGE_START = "dagster/asset_partition_range_start"
_RANGE_END = "dagster/asset_partition_range_end"
# Dagster's console logger prints every event. The demo prints its own progress.
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass(frozen=True, slots=True)
class Requested:
    """One request of automation: a contiguous range of a table's partitions in Dagster's order, or without
    partitions its housekeeping."""

    table: TableId
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunResult:
    """One finished run."""

    run_id: str
    success: bool


class InProcessDagster:
    """Evaluates and runs one set of definitions on one instance.

    `housekeeping`: whether a tick also returns requests of housekeeping, after those of data.
    """

    def __init__(
        self,
        definitions: dg.Definitions,
        home: Path,
        tables: Sequence[TableId],
        *,
        housekeeping: bool = False,
        translator: IcebergTranslator | None = None,
    ) -> None:
        self._definitions = definitions
        self._instance = dg.DagsterInstance.from_config(str(home))
        self._tables = tuple(tables)
        self._housekeeping = housekeeping
        self._translator = translator or IcebergTranslator()
        self._cursor: Any = None

    def close(self) -> None:
        """Closes the instance's databases."""
        self._instance.dispose()

    def observe(self) -> RunResult:
        """Runs the observe job over every table."""
        job = self._definitions.resolve_job_def(OBSERVE_JOB)
        config = {"ops": {"observe_tables": {"config": {"changed_only": False}}}, **_QUIET}
        result = job.execute_in_process(run_config=config, instance=self._instance, raise_on_error=False)
        return RunResult(result.run_id, result.success)

    def tick(self) -> tuple[Requested, ...]:
        """Evaluates the automation conditions once and returns their requests. Runs nothing."""
        result = dg.evaluate_automation_conditions(self._definitions, self._instance, cursor=self._cursor)
        self._cursor = result.cursor
        data = [
            Requested(table, piece)
            for table in self._tables
            for piece in self._ranges(
                table, result.get_requested_partitions(self._translator.get_asset_key(table))
            )
        ]
        housekeeping = [
            t for t in self._tables if result.get_num_requested(self._translator.get_housekeeping_key(t))
        ]
        return (*data, *map(Requested, housekeeping if self._housekeeping else ()))

    def run(self, table: TableId, partitions: Sequence[str]) -> RunResult:
        """Materializes a range of partitions, or without partitions the table's housekeeping, in this
        process with the code of the asset."""
        job = self._definitions.resolve_implicit_global_asset_job_def()
        span = {_RANGE_START: partitions[0], _RANGE_END: partitions[-1]} if partitions else {}
        result = job.execute_in_process(
            run_config=_QUIET,
            instance=self._instance,
            asset_selection=[
                self._translator.get_asset_key(table)
                if partitions
                else self._translator.get_housekeeping_key(table)
            ],
            tags={**span, ENGINE_TAG: "spark", "user": "demo"},
            raise_on_error=False,
        )
        return RunResult(result.run_id, result.success)

    def partitions(self, table: TableId) -> tuple[str, ...]:
        """The table's partition keys in Dagster, in Dagster's order."""
        return tuple(self._instance.get_dynamic_partitions(self._translator.get_partitions_name(table)))

    def _ranges(self, table: TableId, requested: Collection[str | None]) -> Iterator[tuple[str, ...]]:
        piece: list[str] = []
        for partition in self.partitions(table):
            if partition in requested:
                piece.append(partition)
            elif piece:
                yield tuple(piece)
                piece = []
        if piece:
            yield tuple(piece)


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


def open_in_process(context: Context, place: Place, *, housekeeping: bool = False) -> InProcessDagster:
    """The production definitions on the lake's Dagster instance, with `housekeeping` or for the data only.

    Sets this process's environment variables to the lake, as `make dev` does for the daemon.
    """
    # Dagster warns of partitioned checks and of our automation sensor. We use both on purpose.
    warnings.filterwarnings("ignore", message=r".*is currently in (preview|beta).*")
    os.environ[CONFIG_VARIABLE] = str(place.config)
    os.environ["DAGSTER_HOME"] = str(place.dagster_home)
    # Imported here, because the import builds the definitions from the environment.
    from iceberg_maint.defs.load_definitions import definitions_from

    defs = definitions_from(os.environ)
    return InProcessDagster(defs, place.dagster_home, context.catalogs.tables(), housekeeping=housekeeping)


def heal(context: Context, dagster: InProcessDagster, step: Step) -> Healing:
    """Evaluates automation and runs its requests until there are none."""
    healing = Healing()
    while not healing.settled and healing.ticks < MAX_TICKS:
        healing.settled = not heal_once(context, dagster, healing, step)
    return healing


def heal_once(context: Context, dagster: InProcessDagster, healing: Healing, step: Step) -> bool:
    """One tick: evaluates automation and runs its requests. Returns whether there were any."""
    healing.ticks += 1
    requested = dagster.tick()
    for request in requested:
        _run(context, dagster, request, healing, step)
    return bool(requested)


def _run(
    context: Context, dagster: InProcessDagster, request: Requested, healing: Healing, step: Step
) -> None:
    result = dagster.run(request.table, request.partitions)
    known = {r.record_id for r in healing.records}
    records = tuple(
        r
        for r in reversed(context.ledger.records.newest(str(request.table), 100))
        if r.run_id.startswith(result.run_id) and r.record_id not in known
    )
    healing.records += records
    if not result.success:
        healing.failed_runs.append(result.run_id)
    step(healing.ticks, request, result.success, records)


class End(StrEnum):
    """The final state of a table. HEALED and UNTOUCHED are good."""

    HEALED = "healed"
    UNTOUCHED = "untouched"
    UNHEALTHY = "still unhealthy"
    TOUCHED = "changed, although it must not change"
    ROWS_DIFFER = "ROWS DIFFER"


@dataclass(frozen=True, slots=True)
class DemoState:
    """One table at one time: its data, and the due operations of housekeeping. `retained` are the orphans that
    the last scan has left in the trash."""

    measured: Measured
    decision: Decision
    housekeeping: tuple[str, ...] = ()
    retained: tuple[RetainedOrphans, ...] = ()

    def document(self) -> dict[str, Any]:
        """The JSON document."""
        total = self.measured.total()
        return {
            "snapshot": self.measured.snapshot_id,
            "partitions": len(self.measured.partitions),
            "due_partitions": self.due,
            "data_files": total.data_files,
            "data_bytes": total.data_bytes,
            "small_files": total.small_files,
            "position_delete_files": total.position_delete_files,
            "deletion_vectors": total.deletion_vectors,
            "equality_delete_files": total.equality_delete_files,
            "delete_ratio": total.delete_ratio,
            "snapshots": self.measured.table_health.snapshots,
            "manifests": self.measured.table_health.manifests,
            "housekeeping": list(self.housekeeping),
            "trashed_files": sum(h.files for h in self.retained),
            "decision": self.decision.verdict.value,
            "reason": self.decision.reason.value,
        }

    @property
    def due(self) -> int:
        """Number of partitions that need maintenance, supported or not."""
        return sum(1 for p in self.decision.partitions if p.verdict in (Verdict.RUN, Verdict.REFUSE))


@dataclass(frozen=True, slots=True)
class TableResult:
    """One table of the demo, before and after."""

    table: DemoTable
    before: DemoState
    after: DemoState
    rows: Comparison
    end: End

    @property
    def good(self) -> bool:
        """Whether the final state is good."""
        return self.end in (End.HEALED, End.UNTOUCHED)

    def document(self) -> dict[str, Any]:
        """The JSON document."""
        return {
            "table": self.table.full_name,
            "sick": self.table.problem,
            "end": self.end.value,
            "good": self.good,
            "before": self.before.document(),
            "after": self.after.document(),
            "rows": {
                "before": self.rows.rows_before,
                "after": self.rows.rows_after,
                "missing": self.rows.missing,
                "unexpected": self.rows.unexpected,
            },
        }


def state_of(context: Context, table: TableId) -> DemoState:
    """Measures a table and makes the decisions. Changes nothing in the lake."""
    assessment = assess(table, context, ALL_OPERATIONS)
    data, housekeeping = assessment.only(DATA_OPERATIONS), assessment.only(HOUSEKEEPING_OPERATIONS)
    last_scan = context.ledger.records.last_report(assessment.state.uuid, Operation.REMOVE_ORPHAN_FILES)
    return DemoState(
        assessment.measured,
        data.decision,
        tuple(d.operation for d in housekeeping.decisions if d.verdict is Verdict.RUN),
        (last_scan.outcome.retained or ()) if last_scan else (),
    )


def judge(table: DemoTable, before: DemoState, after: DemoState, rows: Comparison) -> TableResult:
    """The verdict on one table."""
    return TableResult(table, before, after, rows, _end(table, before, after, rows))


def _end(table: DemoTable, before: DemoState, after: DemoState, rows: Comparison) -> End:
    touched = before.measured.snapshot_id != after.measured.snapshot_id
    if not rows.equal:
        return End.ROWS_DIFFER
    if table.name == CONTROL:
        return End.TOUCHED if touched or after.retained else End.UNTOUCHED
    if after.decision.verdict is not Verdict.SKIP or after.housekeeping:
        return End.UNHEALTHY
    return End.HEALED if touched else End.UNTOUCHED
