"""Small values for the core's tests; sizes in bytes of a table whose target is 100."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from iceberg_maint.core.decisions import decide as decisions
from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.health.metrics import Measured, PartitionHealth
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.partition_key import PartitionField, PartitionSpec
from iceberg_maint.core.model.reasons import (
    Check,
    Decision,
    Finding,
    PartitionDecision,
    Reason,
    Severity,
    Verdict,
)
from iceberg_maint.core.model.table_state import FileKind, LiveFile
from iceberg_maint.core.planning.file_groups import BatchLimits, PlanInputs
from iceberg_maint.core.planning.plan import Plan
from iceberg_maint.core.planning.planner import partitions_to_read, plan_operation
from iceberg_maint.core.policy.data import Policy, RewriteDataFilesPolicy
from iceberg_maint.core.policy.runs import WindowsPolicy
from iceberg_maint_tests.support.fakes.catalog import FakeCatalog, FakeTable, fake_table, measure_files

TARGET = 100
NOW_MS = 1_700_000_000_000
BY_P = PartitionSpec(0, (PartitionField(1000, 1, "p", "identity", "string"),))


def data(
    path: str, size: int, *, partition: str = "p=a", seq: int = 1, spec_id: int = 0, records: int = 10
) -> LiveFile:
    return LiveFile(path, FileKind.DATA, spec_id, partition, records, size, seq, "parquet")


def delete(
    path: str,
    kind: FileKind = FileKind.POSITION_DELETES,
    *,
    of: str | None = None,
    partition: str = "p=a",
    seq: int = 2,
    spec_id: int = 0,
    records: int = 1,
    keys: tuple[int, ...] = (1,),
) -> LiveFile:
    """Of 5 bytes; `keys` are the columns of equality deletes."""
    ids = keys if kind is FileKind.EQUALITY_DELETES else ()
    return LiveFile(
        path,
        kind,
        spec_id,
        partition,
        records,
        5,
        seq,
        "parquet",
        referenced_data_file=of,
        equality_ids=ids,
    )


def small(count: int, size: int = 10, *, partition: str = "p=a", seq: int = 1) -> list[LiveFile]:
    return [data(f"{partition}/{i}", size, partition=partition, seq=seq) for i in range(count)]


def policy_of(
    rewrite: RewriteDataFilesPolicy | None = None, windows: WindowsPolicy | None = None, **top: object
) -> Policy:
    """The built-in policy with a target of 100 bytes."""
    return Policy(
        rewrite_data_files=rewrite or RewriteDataFilesPolicy(target_file_size_bytes=TARGET),
        windows=windows or WindowsPolicy(),
        **top,  # type: ignore[arg-type]
    )


def rewrite_policy(**keys: object) -> RewriteDataFilesPolicy:
    return RewriteDataFilesPolicy(**{"target_file_size_bytes": TARGET, **keys})  # type: ignore[arg-type]


def table_of(
    files: Iterable[LiveFile], *, specs: Iterable[PartitionSpec] = (BY_P,), format_version: int = 2
) -> FakeTable:
    return fake_table("lake.db.t", files, specs=specs, format_version=format_version, now_ms=NOW_MS)


def measured_of(partitions: dict[str, PartitionHealth], snapshot_id: int | None = 1001) -> Measured:
    table = table_of(small(1))
    found = measure_files(table, rewrite_policy())
    return Measured(
        found.table,
        found.table_uuid,
        snapshot_id,
        1,
        found.metadata_location,
        found.table_health,
        partitions,
        TARGET,
    )


def decide(
    table: FakeTable,
    policy: Policy,
    history: TableHistory | None = None,
    *,
    beside: TableHistory | None = None,
    now_ms: int = NOW_MS,
    requested: frozenset[str] | None = None,
    force: bool = False,
    operation: Operation = Operation.REWRITE_DATA_FILES,
) -> Decision:
    measured = replace(
        measure_files(table, policy.rewrite_data_files), format_version=table.state.format_version
    )
    histories = histories_of(operation, history, beside)
    situation = decisions.Situation(measured, policy, histories, now_ms, requested, force)
    return decisions.decide(operation, situation)


def histories_of(
    operation: Operation, history: TableHistory | None, beside: TableHistory | None = None
) -> dict[Operation, TableHistory]:
    """The histories of an operation on data and of the other one that cleans the same deletes."""
    other = decisions.other_data_operation(operation)
    beside_it = {} if other is None or beside is None else {other: beside}
    return {operation: history or TableHistory(), **beside_it}


def plan(
    table: FakeTable,
    policy: Policy,
    decision: Decision | None = None,
    *,
    before_conversion: bool = False,
    rewritten: frozenset[str] = frozenset(),
    alone: frozenset[str] = frozenset(),
) -> Plan:
    """The plan of the operation decided on, of files read as the loop reads them."""
    decision = decision or decide(table, policy)
    measured = measure_files(table, policy.rewrite_data_files)
    keys = partitions_to_read(decision, measured)
    live = FakeCatalog("lake", [table]).live_files(table.state, keys)
    limits = BatchLimits(alone=alone)
    return plan_operation(
        PlanInputs(table.state, decision, live, policy, TARGET, limits, before_conversion, rewritten)
    )


def finding(
    reason: Reason = Reason.SMALL_FILES,
    *,
    value: float = 10,
    threshold: float = 5,
    severity: Severity = Severity.ERROR,
) -> Finding:
    check = Check.SMALL_FILES if reason is Reason.SMALL_FILES else Check.DELETE_FILES
    return Finding(check, severity, reason, "metric", value, threshold, "rewrite_data_files.key")


def due(
    partition: str = "p=a", *, size: int = 0, score: float = 1.0, reason: Reason = Reason.SMALL_FILES
) -> PartitionDecision:
    return PartitionDecision(partition, Verdict.RUN, reason, (finding(reason),), score, size)
