"""The verdict on each table, from its state before and after."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import CYCLE, DATA_OPERATIONS, HOUSEKEEPING_OPERATIONS, Operation, TableId
from iceberg_maint.core.model.reasons import Decision, Verdict
from iceberg_maint.core.removal.orphan_rules import HeldOrphans
from iceberg_maint.demo.duckdb_reader import Comparison
from iceberg_maint.demo.tables import CONTROL, DemoTable
from iceberg_maint.loop.assess import assess
from iceberg_maint.loop.context import Context


class End(StrEnum):
    """The final state of a table. HEALED and UNTOUCHED are good."""

    HEALED = "healed"
    UNTOUCHED = "untouched"
    UNHEALTHY = "still unhealthy"
    TOUCHED = "changed, although it must not change"
    ROWS_DIFFER = "ROWS DIFFER"


@dataclass(frozen=True, slots=True)
class Look:
    """One table at one time: its data, and the due operations of housekeeping. `held` are the orphans that
    the last pass has left in the trash."""

    measured: Measured
    decision: Decision
    housekeeping: tuple[str, ...] = ()
    held: tuple[HeldOrphans, ...] = ()

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
            "trashed_files": sum(h.files for h in self.held),
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
    before: Look
    after: Look
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


def look(context: Context, table: TableId) -> Look:
    """Measures a table and makes the decisions. Changes nothing in the lake."""
    assessment = assess(table, context, CYCLE)
    data, housekeeping = assessment.only(DATA_OPERATIONS), assessment.only(HOUSEKEEPING_OPERATIONS)
    last_pass = context.ledger.records.last_report(assessment.state.uuid, Operation.REMOVE_ORPHAN_FILES)
    return Look(
        assessment.measured,
        data.decision,
        tuple(d.operation for d in housekeeping.decisions if d.verdict is Verdict.RUN),
        (last_pass.outcome.held or ()) if last_pass else (),
    )


def judge(table: DemoTable, before: Look, after: Look, rows: Comparison) -> TableResult:
    """The verdict on one table."""
    return TableResult(table, before, after, rows, _end(table, before, after, rows))


def _end(table: DemoTable, before: Look, after: Look, rows: Comparison) -> End:
    touched = before.measured.snapshot_id != after.measured.snapshot_id
    if not rows.equal:
        return End.ROWS_DIFFER
    if table.name == CONTROL:
        return End.TOUCHED if touched or after.held else End.UNTOUCHED
    if after.decision.verdict is not Verdict.SKIP or after.housekeeping:
        return End.UNHEALTHY
    return End.HEALED if touched else End.UNTOUCHED
