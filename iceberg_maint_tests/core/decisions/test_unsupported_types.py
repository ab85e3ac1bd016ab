"""Tables whose rows no operation on data reads: refused with the column, before anything is tried."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.decisions.applicability import (
    SPARK_3,
    SPARK_4,
    RowTypes,
    column_list,
    row_types,
    unsupported_columns,
)
from iceberg_maint.core.decisions.decide import decide
from iceberg_maint.core.decisions.history import PartitionHistory, TableHistory
from iceberg_maint.core.decisions.rules import Situation, unreadable_rows
from iceberg_maint.core.decisions.rules import wrong_property as wrong_property_stop
from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.model.columns import wrong_property
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation
from iceberg_maint.core.model.reasons import Decision, Reason, Verdict
from iceberg_maint.core.policy.data import RewriteStrategy
from iceberg_maint_tests.support.core.values import NOW_MS, measured_of, policy_of, rewrite_policy

SICK = PartitionHealth(data_files=10, data_bytes=100, small_files=10, small_bytes=100, last_change_ms=NOW_MS)
HEALTHY = PartitionHealth(data_files=10, data_bytes=1000)
TIME = {"at": "time", "s.x": "timestamp_ns"}


def decided(
    types: dict[str, str],
    history: TableHistory | None = None,
    *,
    partition: PartitionHealth = SICK,
    force: bool = False,
    readers: RowTypes = SPARK_4,
) -> Decision:
    """The decision under a policy by which only Spark reads rows."""
    measured = replace(measured_of({"p=a": partition}), uncommon_types=types, format_version=3)
    operation = Operation.REWRITE_DATA_FILES
    policy = policy_of(rewrite_policy(strategy=RewriteStrategy.NATIVE))
    histories = {operation: history or TableHistory()}
    return decide(operation, Situation(measured, policy, histories, NOW_MS, force=force, readers=readers))


@pytest.mark.parametrize("force", [False, True])
def test_due_table_is_refused_with_the_names_of_the_columns(force: bool) -> None:
    found = decided(TIME, force=force)
    assert (found.verdict, found.reason) == (Verdict.REFUSE, Reason.UNSUPPORTED_TYPE)
    assert found.evidence == {"columns": "at (time), s.x (timestamp_ns)", "read_by": "columnar"}
    assert [(p.verdict, p.reason) for p in found.partitions] == [(Verdict.REFUSE, Reason.UNSUPPORTED_TYPE)]


@pytest.mark.parametrize(
    "past",
    [PartitionHistory(quarantined=True), PartitionHistory(not_before_ms=NOW_MS + 1, ineffective=3)],
)
def test_partition_that_was_put_on_hold_for_such_a_column_is_refused(past: PartitionHistory) -> None:
    found = decided(TIME, TableHistory(partitions={"p=a": past}))
    assert [(p.verdict, p.reason) for p in found.partitions] == [(Verdict.REFUSE, Reason.UNSUPPORTED_TYPE)]


def test_healthy_table_is_not_refused() -> None:
    assert decided(TIME, partition=HEALTHY).reason is Reason.HEALTHY


def test_columns_that_spark_reads_stop_nothing() -> None:
    assert decided({"v": "variant", "n": "unknown"}).verdict is Verdict.RUN
    assert decided({"v": "variant"}, readers=SPARK_3).evidence == {"columns": "v (variant)"}


@pytest.mark.parametrize(("version", "types"), [("3.5.9", SPARK_3), ("4.1.4", SPARK_4), ("4.2.0", SPARK_4)])
def test_row_types_are_those_of_the_version(version: str, types: RowTypes) -> None:
    assert row_types(version) == types


def test_another_way_to_read_rows_is_one_more_set_of_types() -> None:
    columnar: RowTypes = (*SPARK_4, frozenset({"time", "timestamp_ns"}))
    assert unsupported_columns(TIME, columnar) == {}
    # No way reads both: the columns are those of the way that comes nearest.
    assert unsupported_columns({**TIME, "v": "variant"}, columnar) == {"v": "variant"}
    assert unsupported_columns(TIME, ()) == TIME


def test_operations_that_read_no_row_are_not_refused() -> None:
    measured = replace(measured_of({}), uncommon_types=TIME)
    native = policy_of(rewrite_policy(strategy=RewriteStrategy.NATIVE))
    situation = Situation(measured, native, {}, NOW_MS)
    stopped = {o for o in Operation if unreadable_rows(o, situation) is not None}
    assert stopped == set(DATA_OPERATIONS)


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("page-row-limit", "0", "it must be a whole number from 1 to 2147483647"),
        ("page-size-bytes", "-1", "it must be a whole number from 1 to 2147483647"),
        ("dict-size-bytes", "2MB", "it must be a whole number from 1 to 2147483647"),
        ("row-group-size-bytes", "2147483648", "it must be a whole number from 1 to 2147483647"),
        ("compression-level", "high", "it must be a whole number"),
        (
            "compression-codec",
            "bogus",
            "without a jar of its own Spark writes gzip, lz4, lz4_raw, snappy, uncompressed, zstd",
        ),
    ],
)
def test_due_table_is_refused_with_the_property_that_no_writer_takes(
    name: str, value: str, rule: str
) -> None:
    wrong = wrong_property({f"write.parquet.{name}": value})
    assert wrong == f"write.parquet.{name} = {value}; {rule}"
    measured = replace(measured_of({"p=a": SICK}), wrong_property=wrong)
    situation = Situation(measured, policy_of(), {}, NOW_MS, force=True)
    found = decide(Operation.REWRITE_DATA_FILES, situation)
    assert (found.verdict, found.reason) == (Verdict.REFUSE, Reason.WRITER_PROPERTY)
    assert found.evidence == {"property": wrong}
    assert [p.verdict for p in found.partitions] == [Verdict.REFUSE]


@pytest.mark.parametrize(
    "properties",
    [
        {"write.parquet.compression-codec": "brotli"},  # a jar of Spark may write it
        {"write.parquet.page-row-limit": "0", "write.format.default": "orc"},
        {"write.parquet.compression-level": "-5"},
    ],
)
def test_property_that_a_writer_may_take_is_not_wrong(properties: dict[str, str]) -> None:
    assert wrong_property(properties) == ""


def test_wrong_property_stops_the_rewrite_of_data_files_only() -> None:
    measured = replace(measured_of({}), wrong_property="write.parquet.page-row-limit = 0")
    situation = Situation(measured, policy_of(), {}, NOW_MS)
    stopped = [o for o in Operation if wrong_property_stop(o, situation) is not None]
    assert stopped == [Operation.REWRITE_DATA_FILES]


def test_many_columns_are_counted() -> None:
    columns = {f"c{n}": "time" for n in range(7)}
    assert column_list(columns) == "c0 (time), c1 (time), c2 (time), c3 (time), c4 (time) and 2 more"
