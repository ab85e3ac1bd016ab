"""Which tables get no deletion vector because a reader would lose them, and what happens to their deletes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.decisions.applicability import losing_readers, readers_policy
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.table_state import FileKind, LiveFile
from iceberg_maint.core.policy.data import Policy, Reader, RewriteStrategy, Route
from iceberg_maint.report.plan_notes import readers_sentence
from iceberg_maint_tests.support.core.equality_deletes import cleaning, equality, healthy, inputs, plans
from iceberg_maint_tests.support.core.values import data, decide, delete, plan, small, table_of
from iceberg_maint_tests.support.fakes.catalog import measure_files

VECTOR = delete("v", FileKind.DELETION_VECTOR, of="b")
EQUALITY = [healthy("a"), healthy("b"), equality("e")]
MARKED = [data(f"{n}", 100) for n in range(6)] + [delete(f"p{n}", of=f"{n}") for n in range(6)]
CLICKHOUSE, DUCKDB, SPARK = Reader.CLICKHOUSE, Reader.DUCKDB, Reader.SPARK
BOTH = (Reader.CLICKHOUSE, Reader.DAFT)


def named(*readers: Reader, **equality_keys: object) -> Policy:
    return replace(cleaning(**equality_keys), readers=readers)


def lost(files: list[LiveFile], policy: Policy, version: int = 3) -> tuple[Reader, ...]:
    table = table_of(files, format_version=version)
    return losing_readers(measure_files(table, policy.rewrite_data_files), policy)


def effective(files: list[LiveFile], policy: Policy) -> Policy:
    measured = measure_files(table_of(files, format_version=3), policy.rewrite_data_files)
    return readers_policy(policy, measured)


@pytest.mark.parametrize(
    ("files", "policy", "version", "expected"),
    [
        (EQUALITY, named(), 3, BOTH),
        (EQUALITY, named(route=Route.CONVERT), 3, ()),
        ([*EQUALITY, VECTOR], named(), 3, ()),
        (EQUALITY, named(SPARK, DUCKDB), 3, ()),
        (EQUALITY, named(SPARK, CLICKHOUSE), 3, (CLICKHOUSE,)),
        (EQUALITY, named(CLICKHOUSE, route=Route.CONVERT), 3, (CLICKHOUSE,)),
        ([*EQUALITY, VECTOR], named(CLICKHOUSE), 3, (CLICKHOUSE,)),
        (EQUALITY, named(CLICKHOUSE), 2, ()),
    ],
    ids=[
        "first vector with no reader named",
        "first vector by the route",
        "not the first vector",
        "every named reader reads vectors",
        "a named reader does not",
        "a named reader against the route",
        "a named reader of a table with vectors",
        "position deletes of v2",
    ],
)
def test_reader_that_reads_no_vectors_is_named(
    files: list[LiveFile], policy: Policy, version: int, expected: tuple[Reader, ...]
) -> None:
    assert lost(files, policy, version) == expected


def test_files_under_equality_deletes_are_rewritten_in_place_of_a_first_vector() -> None:
    table = table_of(EQUALITY, format_version=3)
    converted, rewritten = plans(table, named(SPARK))
    assert (inputs(converted), inputs(rewritten)) == ([["a", "b"]], [])
    converted, rewritten = plans(table, effective(EQUALITY, named()))
    assert (inputs(converted), inputs(rewritten)) == ([], [["a", "b"]])
    assert [d.path for b in rewritten.batches for d in b.equality_deletes if d.drop] == ["e"]


@pytest.mark.parametrize("force", [False, True])
def test_position_deletes_stay_in_place_of_first_vectors(force: bool) -> None:
    table, merge = table_of(MARKED, format_version=3), Operation.REWRITE_POSITION_DELETE_FILES
    for policy, batches in ((named(SPARK), 1), (effective(MARKED, named()), 0)):
        decision = decide(table, policy, operation=merge, force=force)
        assert len(plan(table, policy, decision).batches) == batches


def test_deletes_that_mark_nothing_are_dropped_where_no_vector_is_written() -> None:
    files = [*MARKED, delete("gone", of="x")]
    table, policy = table_of(files, format_version=3), effective(files, named())
    decision = decide(table, policy, operation=Operation.REWRITE_POSITION_DELETE_FILES)
    (batch,) = plan(table, policy, decision).batches
    assert [(d.path, d.void) for d in batch.position_deletes] == [("gone", True)]


@pytest.mark.parametrize(
    ("policy", "in_why", "in_plan"),
    [
        (
            named(),
            (
                "no deletion vectors: clickhouse and daft would lose the table, and the policy key readers is not set; "
                "equality deletes are applied by rewriting data files"
            ),
            (
                "no deletion vectors: clickhouse and daft would lose the table, and the policy key readers is not set; "
                "the data files under equality deletes are rewritten: 400 B read and written"
            ),
        ),
        (
            named(CLICKHOUSE),
            (
                "no deletion vectors: clickhouse of the policy key readers would lose the table; "
                "equality deletes are applied by rewriting data files"
            ),
            (
                "no deletion vectors: clickhouse of the policy key readers would lose the table; "
                "the data files under equality deletes are rewritten: 400 B read and written"
            ),
        ),
        (
            named(SPARK),
            "may bring deletion vectors into the table, which has none: not read by clickhouse and daft",
            (
                "brings deletion vectors into the table, which has none: not read by clickhouse and daft; "
                "a rewrite of the data files would read and write 400 B"
            ),
        ),
        (named(route=Route.REWRITE), "", ""),
    ],
)
def test_sentence_names_what_is_brought_and_what_the_other_way_costs(
    policy: Policy, in_why: str, in_plan: str
) -> None:
    table = table_of(EQUALITY, format_version=3)
    measured = measure_files(table, policy.rewrite_data_files)
    batches = [b for p in plans(table, readers_policy(policy, measured)) for b in p.batches]
    assert readers_sentence(measured, policy, {}) == in_why
    assert readers_sentence(measured, policy, {}, batches) == in_plan


@pytest.mark.parametrize(
    ("readers", "route", "expected"),
    [
        ((SPARK, DUCKDB), Route.AUTO, Route.REWRITE),
        ((SPARK, DUCKDB), Route.CONVERT, Route.CONVERT),
        ((SPARK,), Route.AUTO, Route.AUTO),
        ((), Route.AUTO, Route.AUTO),
    ],
    ids=["slowed reader", "slowed reader against the route", "reader that is not slowed", "no reader named"],
)
def test_equality_deletes_are_not_converted_for_a_reader_that_position_deletes_slow_down(
    readers: tuple[Reader, ...], route: Route, expected: Route
) -> None:
    policy = named(*readers, route=route)
    measured = measure_files(table_of(EQUALITY), policy.rewrite_data_files)
    used = readers_policy(policy, measured)
    assert used.equality_deletes.route is expected
    assert used.rewrite_position_delete_files == policy.rewrite_position_delete_files


def test_sentence_names_the_reader_that_position_deletes_slow_down() -> None:
    policy = named(SPARK, DUCKDB)
    table = table_of(EQUALITY, format_version=3)
    measured = measure_files(table, policy.rewrite_data_files)
    batches = [b for p in plans(table, readers_policy(policy, measured)) for b in p.batches]
    why = "no deletion vectors: they slow down duckdb of the policy key readers; "
    assert (
        readers_sentence(measured, policy, {}) == why + "equality deletes are applied by rewriting data files"
    )
    assert readers_sentence(measured, policy, {}, batches) == (
        why + "the data files under equality deletes are rewritten: 400 B read and written"
    )


def test_sentence_on_position_deletes_of_v2_names_no_reader() -> None:
    table = table_of(EQUALITY)
    measured = measure_files(table, named().rewrite_data_files)
    batches = [b for p in plans(table, named()) for b in p.batches]
    assert readers_sentence(measured, named(), {}, batches) == (
        "brings position deletes parquet into the table, which has none: read by every engine of the record"
    )


def test_position_deletes_that_are_not_parquet_take_a_table_away() -> None:
    measured = measure_files(table_of(EQUALITY), named().rewrite_data_files)
    properties = {"write.delete.format.default": "ORC"}
    orc = (Reader.CLICKHOUSE, Reader.DAFT, Reader.DUCKDB, Reader.POLARS)
    assert losing_readers(measured, named(), properties) == orc
    assert losing_readers(measured, named(Reader.PYICEBERG), properties) == ()
    assert readers_policy(named(), measured, properties).equality_deletes.route is Route.REWRITE
    assert readers_policy(named(), measured) == named()


def test_sentence_names_the_format_and_the_codec_that_a_rewrite_brings() -> None:
    table, policy = table_of(small(6)), replace(named(), readers=())
    measured = measure_files(table, policy.rewrite_data_files)
    batches = list(plan(table, policy).batches)
    orc = {"write.format.default": "orc"}
    assert readers_sentence(measured, policy, orc, batches) == (
        "writes data orc: not read by daft, duckdb and polars"
    )
    assert readers_sentence(measured, policy, {}, batches) == ""
    lz4 = {"write.parquet.compression-codec": "lz4"}
    assert readers_sentence(measured, policy, lz4, batches) == ""
    by_spark = replace(
        policy, rewrite_data_files=replace(policy.rewrite_data_files, strategy=RewriteStrategy.NATIVE)
    )
    batches = list(plan(table, by_spark).batches)
    assert readers_sentence(measured, by_spark, lz4, batches) == "writes codec lz4: not read by duckdb"
    by_spark = replace(by_spark, readers=(DUCKDB, SPARK))
    assert readers_sentence(measured, by_spark, lz4, batches) == (
        "a run is refused (ICM-182): a rewrite would write codec lz4, not read by duckdb of the policy key readers"
    )
    assert readers_sentence(measured, by_spark, orc) == (
        "a run may be refused (ICM-182): a rewrite would write data orc, not read by duckdb of the policy key readers"
    )
    assert readers_sentence(measured, replace(by_spark, readers=(SPARK,)), orc) == ""
