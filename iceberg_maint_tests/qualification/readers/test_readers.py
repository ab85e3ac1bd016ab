"""Readers that the environment has, before and after maintenance of v3 tables; the record of all five."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.decisions.applicability import UNREAD, Feature
from iceberg_maint.core.model.ids import DATA_OPERATIONS, TableId
from iceberg_maint.core.policy.data import EqualityDeletesPolicy, Reader, RewriteDataFilesPolicy, Route
from iceberg_maint_tests.qualification.readers.__main__ import losses, words
from iceberg_maint_tests.qualification.readers.engines import ENGINES, Answer, Engine, digest
from iceberg_maint_tests.qualification.readers.tables import TABLES, table_name
from iceberg_maint_tests.support.spark.housekeeping import KEEP_ONE, Keeper
from iceberg_maint_tests.support.spark.workshop import Workshop, workshop_of

pytestmark = pytest.mark.slow

RECORD = Path(__file__).resolve().parents[3] / "docs" / "project" / "readers.json"
AT_ONCE = replace(
    KEEP_ONE,
    equality_deletes=EqualityDeletesPolicy(route=Route.CONVERT),
    rewrite_data_files=RewriteDataFilesPolicy(min_input_files=1000, equality_delete_max_age_seconds=0),
)


@pytest.fixture(scope="module")
def workshop(spark: SparkSession, lake_dir: Path) -> Workshop:
    spark.sql("create namespace if not exists lake.readers")
    return workshop_of(spark, lake_dir)


@pytest.mark.drawn(1)
@pytest.mark.spark
@pytest.mark.parametrize(
    ("title", "readers", "engine", "rows", "deletes"),
    [
        ("equality deletes v3", (Reader.CLICKHOUSE,), "duckdb", 21, (0, 0, 0)),
        ("equality deletes v3", (Reader.SPARK,), "duckdb", 21, (3, 0, 0)),
        ("position deletes in v3", (Reader.DAFT,), "pyiceberg", 18, (0, 6, 0)),
        ("position deletes in v3", (Reader.SPARK,), "pyiceberg", 18, (6, 0, 0)),
    ],
)
def test_table_has_vectors_after_maintenance_only_if_its_readers_read_them(
    workshop: Workshop,
    tmp_path: Path,
    title: str,
    readers: tuple[Reader, ...],
    engine: str,
    rows: int,
    deletes: tuple[int, int, int],
) -> None:
    name, policy = workshop.new_name("readers"), replace(AT_ONCE, readers=readers)
    TABLES[title](workshop.writers, name, tmp_path)
    reader = Engine(engine, None)
    before = reader.read(workshop.catalog.pin(TableId.parse(name)).metadata_location)
    for operation in DATA_OPERATIONS:
        Keeper(workshop, policy).run(name, operation)
    state = workshop.catalog.pin(TableId.parse(name))
    after = reader.read(state.metadata_location)
    reader.close()
    health = workshop.catalog.measure(state, policy.rewrite_data_files).total()
    found = (health.deletion_vectors, health.position_delete_files, health.equality_delete_files)
    assert (before.rows, after, found) == (rows, before, deletes)


def test_engine_that_dies_answers_and_starts_again() -> None:
    engine = Engine("no such engine", None)
    assert engine.read("nowhere").error.startswith("the process died")
    assert engine.read("nowhere").error.startswith("the process died")


def test_digest_of_rows_sees_each_value_and_no_order() -> None:
    rows = pa.table({"b": [[1, None], [2]], "a": ["x", None]})
    assert digest(rows) == digest(rows.take([1, 0]).select(["a", "b"]))
    assert digest(rows) != digest(rows.take([0, 0]))
    assert digest(rows) != digest(pa.table({"b": [[1, None], [3]], "a": ["x", None]}))


def test_unread_features_are_those_of_the_record() -> None:
    assert {
        feature: {
            e for e, (was, _) in tables()[f"lake.columnar.{table_name(feature)}"].items() if was != "yes"
        }
        for feature in Feature
    } == UNREAD
    assert {*ENGINES, Reader.SPARK} == set(Reader)


def test_record_has_all_tables_and_none_that_an_engine_lost() -> None:
    odd = {name.rpartition(".")[2] for name in tables() if name.startswith("lake.columnar.")}
    assert odd == set(map(table_name, TABLES))
    assert [
        (name, engine)
        for name, of_table in tables().items()
        for engine, (was, now) in of_table.items()
        if was == "yes" and now != "yes"
    ] == []


def test_change_of_values_is_a_gain_if_they_are_those_of_an_engine_that_stays() -> None:
    before = {"a": Answer(2, "right"), "b": Answer(2, "wrong"), "c": Answer(1, "few"), "d": Answer(2, "own")}
    after = {"a": Answer(2, "right"), "b": Answer(2, "right"), "c": Answer(2, "right"), "d": Answer(2, "x")}
    assert words(2, before, after) == {
        "a": ("yes", "yes"),
        "b": ("other values", "yes"),
        "c": ("1 rows", "yes"),
        "d": ("yes", "other values"),
    }
    assert losses({"t": 2}, {"t": before}, {"t": after}) == [
        "LOST: d read 2 rows of t, and now: Answer(rows=2, digest='x', error='')"
    ]


def tables() -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = json.loads(RECORD.read_text("utf-8"))["tables"]
    return found
