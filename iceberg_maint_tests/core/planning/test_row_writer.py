"""The writer of a file group: columnar where it qualifies, native where not, with the reason."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from iceberg_maint.core.decisions.applicability import COLUMNAR_TYPES, SPARK_4, row_readers
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.partition_key import PartitionSpec
from iceberg_maint.core.model.reasons import Reason, Verdict
from iceberg_maint.core.model.table_state import FileKind, LiveFile
from iceberg_maint.core.planning.batch_trials import BatchSize, limited
from iceberg_maint.core.planning.plan import Plan, batch_of_text, batch_text
from iceberg_maint.core.planning.work import RewriteDataFiles
from iceberg_maint.core.policy.data import OutputSpec, RewriteStrategy
from iceberg_maint.core.policy.runs import WindowsPolicy
from iceberg_maint_tests.support.core.values import (
    BY_P,
    data,
    decide,
    delete,
    plan,
    policy_of,
    rewrite_policy,
    small,
    table_of,
)

TIME = {"at": "time"}
AUTO, COLUMNAR, NATIVE = RewriteStrategy.AUTO, RewriteStrategy.COLUMNAR, RewriteStrategy.NATIVE
REWRITE, CONVERT = Operation.REWRITE_DATA_FILES, Operation.CONVERT_EQUALITY_DELETES


def planned(
    files: Iterable[LiveFile] | None = None,
    *,
    strategy: RewriteStrategy = COLUMNAR,
    types: dict[str, str] | None = None,
    properties: dict[str, str] | None = None,
    spec_id: int = 0,
    **keys: Any,
) -> Plan:
    table = table_of(small(10) if files is None else files, specs=(BY_P, PartitionSpec(1, BY_P.fields)))
    state = replace(
        table.state, uncommon_types=types or {}, properties=properties or {}, current_spec_id=spec_id
    )
    return plan(replace(table, state=state), policy_of(rewrite_policy(strategy=strategy, **keys)))


@pytest.mark.parametrize(
    ("windows", "strategy", "size", "batches"),
    [
        (WindowsPolicy(), COLUMNAR, 1, [100, 5]),
        (WindowsPolicy(), COLUMNAR, 10, [12] * 8 + [9]),
        (WindowsPolicy(), COLUMNAR, 15, [10] * 10 + [5]),
        (WindowsPolicy(), NATIVE, 1, [10] * 10 + [5]),
        (WindowsPolicy(max_partitions_per_batch=50), COLUMNAR, 1, [50, 50, 5]),
        (WindowsPolicy(max_partitions_per_batch=50), COLUMNAR, 15, [50, 50, 5]),
    ],
)
def test_small_batch_of_columnar_rewrites_holds_more_partitions_unless_the_policy_sets_a_cap(
    monkeypatch: pytest.MonkeyPatch,
    windows: WindowsPolicy,
    strategy: RewriteStrategy,
    size: int,
    batches: list[int],
) -> None:
    monkeypatch.setattr("iceberg_maint.core.policy.runs.SMALL_BATCH_BYTES", 650)
    files = [f for p in range(105) for f in small(5, size, partition=f"p={p:03}")]
    windows = replace(windows, max_partitions_per_run=None)
    found = plan(table_of(files), policy_of(rewrite_policy(strategy=strategy), windows))
    assert [len(b.partitions) for b in found.batches] == batches


def test_batches_after_a_conflict_hold_no_more_partitions_than_the_ordinary_cap() -> None:
    assert limited(WindowsPolicy(), BatchSize(2000, 1000, 40)).max_partitions_per_batch == 10
    assert limited(WindowsPolicy(), BatchSize(2000, 1000, 4)).max_partitions_per_batch == 4


def writers(found: Plan) -> list[tuple[str, str]]:
    """Strategy and reason of each batch."""
    works = [(b.strategy, b.work) for b in found.batches]
    return [(s, w.writer.reason if isinstance(w, RewriteDataFiles) and w.writer else "") for s, w in works]


def with_format(files: list[LiveFile], file_format: str) -> list[LiveFile]:
    return [replace(f, file_format=file_format) for f in files]


def test_file_group_that_qualifies_is_columnar_if_the_policy_says_so() -> None:
    assert writers(planned()) == [("columnar", "")]
    assert writers(planned(strategy=AUTO)) == [("native", "")]
    assert writers(planned(strategy=NATIVE)) == [("native", "")]


def test_position_deletes_in_parquet_and_deletion_vectors_qualify() -> None:
    files = [*small(10), delete("d", of="p=a/1")]
    vector = replace(delete("v", FileKind.DELETION_VECTOR, of="p=a/2"), file_format="puffin")
    assert writers(planned([*files, vector])) == [("columnar", "")]


def test_defaults_that_a_table_states_are_columnar() -> None:
    properties = {
        "write.parquet.bloom-filter-enabled.column.id": "false",
        "write.parquet.dict-encoding-enabled.column.id": "TRUE",
        "write.parquet.stats-enabled.column.id": "true",
        "write.parquet.page-version": "v1",
        "write.parquet.compression-codec": "ZSTD",
        "write.parquet.compression-level": "-5",
        "write.parquet.page-row-limit": "1",
    }
    assert writers(planned(properties=properties)) == [("columnar", "")]


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"files": with_format(small(10), "orc")}, "data files are orc"),
        ({"files": [*small(9), replace(data("p=a/9", 10), file_format="avro")]}, "data files are avro"),
        (
            {"files": [*small(10), *with_format([delete("d", of="p=a/1")], "avro")]},
            "position deletes are avro",
        ),
        ({"files": [replace(f, path=f"gs://lake/{f.path}") for f in small(10)]}, "files are on gs"),
        ({"properties": {"encryption.key-id": "k1"}}, "the table is encrypted"),
        ({"properties": {"write.format.default": "AVRO"}}, "the table writes avro"),
        (
            {"properties": {"write.parquet.bloom-filter-enabled.column.id": "true"}},
            "column id has a bloom filter",
        ),
        (
            {"properties": {"write.parquet.dict-encoding-enabled.column.id": "false"}},
            "column id is written without dictionary",
        ),
        (
            {"properties": {"write.parquet.stats-enabled.column.a.b": "False"}},
            "column a.b is written without statistics",
        ),
        ({"properties": {"write.parquet.page-version": "V2"}}, "the table writes pages of version v2"),
        ({"properties": {"write.parquet.compression-codec": "BROTLI"}}, "the table's codec is brotli"),
        ({"files": [*small(9), data("p=a/9", 181)]}, "a file is to be split"),
        ({"types": {"v": "variant"}}, "columnar does not read v (variant)"),
        (
            {"spec_id": 1, "output_spec": OutputSpec.CURRENT},
            "rows move from partition spec 0 to 1",
        ),
    ],
)
def test_file_group_that_does_not_qualify_is_native_with_the_reason(how: dict[str, Any], reason: str) -> None:
    assert writers(planned(**how)) == [("native", reason)]


def test_old_spec_whose_rows_stay_in_it_qualifies() -> None:
    assert writers(planned(spec_id=1)) == [("columnar", "")]


def test_writers_are_in_separate_batches() -> None:
    orc = [replace(f, file_format="orc", partition="p=b") for f in small(10, partition="p=b")]
    found = planned([*small(10), *orc])
    assert writers(found) == [("columnar", ""), ("native", "data files are orc")]
    assert [b.partitions for b in found.batches] == [("p=a",), ("p=b",)]


@pytest.mark.parametrize("strategy", [AUTO, COLUMNAR])
def test_column_that_spark_cannot_read_is_columnar(strategy: RewriteStrategy) -> None:
    assert writers(planned(types=TIME, strategy=strategy)) == [("columnar", "Spark cannot read at (time)")]


def test_column_that_spark_cannot_read_under_equality_deletes_is_columnar() -> None:
    files = [*small(10), delete("e", FileKind.EQUALITY_DELETES)]
    found = planned(files, types=TIME, strategy=AUTO, delete_ratio_act=None)
    assert writers(found) == [("columnar", "Spark cannot read at (time)")]


def test_column_that_spark_cannot_read_in_files_that_do_not_qualify_is_left() -> None:
    found = planned(with_format(small(10), "orc"), types=TIME, strategy=AUTO)
    assert (found.batches, [(o.reason, o.files) for o in found.leftovers]) == (
        (),
        [(Reason.UNSUPPORTED_TYPE, 10)],
    )


def test_only_the_rewrite_of_data_files_reads_rows_without_spark() -> None:
    assert row_readers(REWRITE, AUTO, SPARK_4) == (*SPARK_4, COLUMNAR_TYPES)
    assert row_readers(REWRITE, NATIVE, SPARK_4) == SPARK_4
    assert row_readers(CONVERT, AUTO, SPARK_4) == SPARK_4


@pytest.mark.parametrize(
    ("strategy", "types", "verdict"),
    [
        (AUTO, TIME, Verdict.RUN),
        (NATIVE, TIME, Verdict.REFUSE),
        (AUTO, {**TIME, "v": "variant"}, Verdict.REFUSE),
        (COLUMNAR, {"g": "geometry"}, Verdict.REFUSE),
    ],
)
def test_decision_refuses_columns_that_no_strategy_reads(
    strategy: RewriteStrategy, types: dict[str, str], verdict: Verdict
) -> None:
    table = table_of(small(10))
    table = replace(table, state=replace(table.state, uncommon_types=types))
    assert decide(table, policy_of(rewrite_policy(strategy=strategy))).verdict is verdict


def test_stored_batch_keeps_its_writer() -> None:
    [batch] = planned().batches
    text = batch_text(batch)
    assert (batch_of_text(text), json.loads(text)["strategy"]) == (batch, "columnar")
    assert json.loads(batch_text(planned(strategy=NATIVE).batches[0]))["writer"] is None
