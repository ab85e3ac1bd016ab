"""The statistics of files that Spark wrote: compared with the rows, and part of the proof of `native`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.policy.data import Policy
from iceberg_maint.engines.spark import write_rows
from iceberg_maint.ports.engine import Written, WrittenFile
from iceberg_maint_tests.support.spark.unhealthy_tables import rewrite, sick_table, workshop
from iceberg_maint_tests.support.spark.workshop import FOOTER, FULL, Workshop

pytestmark = pytest.mark.spark

COLUMNS = (
    "id bigint, f float, d double, m decimal(9,2), n decimal(30,4), s string, b binary, day date, ts timestamp, "
    "local timestamp_ntz, ok boolean, st struct<x: double, y: struct<z: string>>, li array<double>, mp map<string, int>"
)
ROWS = (
    "id, if(id % 3 = 0, cast('NaN' as float), cast(id as float)), if(id % 4 = 0, -0.0D, cast('-Infinity' as double)), "
    "cast(id - 5 as decimal(9,2)), cast(-id as decimal(30,4)), if(id % 2 = 0, null, concat(repeat('ż', 20), id)), "
    "unhex(repeat('FF', cast(id + 10 as int))), date_add(date'1969-12-25', cast(id as int)), "
    "timestamp_micros(id - 3), timestamp_ntz'2024-01-01 00:00:00', null, "
    "if(id = 1, null, named_struct('x', cast(id as double), 'y', named_struct('z', string(id)))), "
    "array(cast(id as double), cast('NaN' as double), null), map(string(id), cast(id as int))"
)


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    return workshop(spark, lake_dir)


def table_of_types(shop: Workshop, version: int, **properties: str) -> str:
    name = shop.new_name("statistics")
    texts = "".join(f", '{k}'='{v}'" for k, v in properties.items())
    shop.sql(
        f"create table {name} ({COLUMNS}) using iceberg tblproperties ('format-version'='{version}'{texts})"
    )
    for start in (0, 6):
        shop.sql(f"insert into {name} select /*+ coalesce(1) */ {ROWS} from range({start}, {start + 6})")
    return name


def written_rows(shop: Workshop, name: str, policy: Policy = FULL) -> Written:
    """Writes and proves the whole table, without a commit: a NaN is not equal to itself when rows are compared here."""
    written = shop.engine.write(shop.batch(name), policy)
    assert written.proof.equal, written.proof.detail
    return written


@pytest.mark.drawn(1)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_true_statistics_of_every_type_that_spark_reads_are_compared(shop: Workshop, version: int) -> None:
    written = written_rows(shop, table_of_types(shop, version))
    assert (written.note, len(written.files)) == ("", 1)


@pytest.mark.variant
def test_statistics_by_metrics_modes_are_compared(shop: Workshop) -> None:
    modes = {
        "write.metadata.metrics.default": "counts",
        "write.metadata.metrics.column.id": "none",
        "write.metadata.metrics.column.s": "full",
        "write.metadata.metrics.column.b": "truncate(3)",
    }
    assert written_rows(shop, table_of_types(shop, 2, **modes)).note == ""


@pytest.mark.variant
def test_columns_whose_names_are_stored_in_another_form_are_compared(shop: Workshop) -> None:
    name = shop.new_name("statistics")
    columns = (
        "`with space` bigint, `x-y` string, `żółć` struct<`in ner`: int>, `1st` array<struct<`x y`: double>>"
    )
    shop.sql(f"create table {name} ({columns}) using iceberg")
    values = "id, string(id), named_struct('in ner', cast(id as int)), array(named_struct('x y', 0.5D))"
    for start in (0, 6):
        shop.sql(f"insert into {name} select /*+ coalesce(1) */ {values} from range({start}, {start + 6})")
    assert written_rows(shop, name).note == ""


@pytest.mark.variant
def test_statistics_of_rows_after_deletes_are_compared(shop: Workshop) -> None:
    written = rewrite(shop, sick_table(shop, 3))
    assert (written.note, written.proof.removed_records) == ("", 3)


@pytest.mark.variant
def test_orc_files_are_written_with_a_note(shop: Workshop) -> None:
    written = written_rows(shop, table_of_types(shop, 2, **{"write.format.default": "orc"}))
    assert written.note == "statistics not compared: files of format orc"


def test_level_footer_decodes_no_rows(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_rows, "prove_statistics", None)
    assert written_rows(shop, table_of_types(shop, 2), FOOTER).note == ""


def with_metric(name: str, field_id: int, value: Any) -> Callable[[str], str]:
    """Changes one entry of content-file JSON."""

    def changed(text: str) -> str:
        content = json.loads(text)
        pairs = content[name]
        pairs["values"][pairs["keys"].index(field_id)] = value
        return json.dumps(content)

    return changed


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (with_metric("value-counts", 1, 11), "column id: the manifest states 11 values; the rows have 12"),
        (with_metric("null-value-counts", 6, 5), "column s: the manifest states 5 nulls; the rows have 6"),
        (with_metric("nan-value-counts", 2, 0), "column f: the manifest states 0 NaNs; the rows have 4"),
        (
            with_metric("upper-bounds", 1, "0A00000000000000"),
            "column id: the manifest states upper bound 10; a row has 11",
        ),
        (
            with_metric("lower-bounds", 8, "00000000"),
            "column day: the manifest states lower bound 0; a row has -7",
        ),
    ],
)
def test_wrong_statistics_fail_the_proof_of_native(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch, change: Callable[[str], str], sentence: str
) -> None:
    name = table_of_types(shop, 2)
    real = write_rows.written_files

    def planted(*values: Any) -> tuple[WrittenFile, ...]:
        return tuple(replace(f, content=change(f.content)) for f in real(*values))

    monkeypatch.setattr(write_rows, "written_files", planted)
    proof = shop.engine.write(shop.batch(name), FULL).proof
    assert (proof.equal, proof.detail.partition(": ")[2]) == (False, sentence)
