"""Properties of a table for Parquet's writer that no writer takes, and codecs that Spark does not write."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.model.columns import CLASSES_OF_CODECS
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import OperationOutcome, OutcomeStatus
from iceberg_maint.core.policy.data import Reader, RewriteStrategy
from iceberg_maint.engines.spark import write_rows
from iceberg_maint.errors import RefusedError
from iceberg_maint_tests.support.spark.housekeeping import Keeper
from iceberg_maint_tests.support.spark.position_deletes import paths
from iceberg_maint_tests.support.spark.unhealthy_tables import workshop
from iceberg_maint_tests.support.spark.workshop import FULL, Workshop

pytestmark = pytest.mark.spark

CODEC = "write.parquet.compression-codec"
SPARK_WRITES = "without a jar of its own Spark writes gzip, lz4, lz4_raw, snappy, uncompressed, zstd"


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    return workshop(spark, lake_dir)


def table_with(shop: Workshop, name: str, value: str, prefix: str = "write.parquet") -> str:
    """A table of two files that got a property afterwards. Returns its name."""
    table = shop.new_name("native")
    shop.sql(f"create table {table} (id bigint) using iceberg")
    for start in (0, 10):
        shop.sql(f"insert into {table} select id from range({start}, {start + 10}, 1, 1)")
    shop.sql(f"alter table {table} set tblproperties ('{prefix}.{name}'='{value}')")
    return table


def rewritten(
    shop: Workshop, table: str, strategy: RewriteStrategy = RewriteStrategy.COLUMNAR, *readers: Reader
) -> OperationOutcome:
    policy = replace(
        FULL, readers=readers, rewrite_data_files=replace(FULL.rewrite_data_files, strategy=strategy)
    )
    return Keeper(shop, policy).run(table, Operation.REWRITE_DATA_FILES, force=True)


@pytest.mark.parametrize(
    ("name", "value"), [("page-row-limit", "0"), ("page-row-limit", "-1"), ("compression-codec", "bogus")]
)
def test_property_that_no_writer_takes_is_refused_before_a_plan(
    shop: Workshop, name: str, value: str
) -> None:
    table = table_with(shop, name, value)
    outcome = rewritten(shop, table)
    assert (outcome.outcome, outcome.reason, outcome.batches) == (
        OutcomeStatus.UNSUPPORTED,
        Reason.WRITER_PROPERTY,
        (),
    )
    assert len(shop.rows(table)) == 20


@pytest.mark.parametrize("strategy", [RewriteStrategy.COLUMNAR, RewriteStrategy.NATIVE])
@pytest.mark.parametrize(
    ("name", "value", "rule", "fix"),
    [
        (
            "page-row-limit",
            "-1",
            "it must be a whole number from 1 to 2147483647",
            "correct or unset the property of the table.",
        ),
        (
            "compression-codec",
            "bogus",
            SPARK_WRITES,
            "set the property of the table to one of these.",
        ),
        (
            "compression-codec",
            "brotli",
            f"Spark's jars have no class org.apache.hadoop.io.compress.BrotliCodec; {SPARK_WRITES}",
            "set the property of the table to one of these, or name the jar in spark.jars.",
        ),
    ],
)
def test_property_that_the_writer_meets_is_refused_with_its_value(
    shop: Workshop,
    name: str,
    value: str,
    rule: str,
    fix: str,
    strategy: RewriteStrategy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The table passes the decision, so that the writer meets the property.
    monkeypatch.setattr("iceberg_maint.core.decisions.rules.PARTITION_STOPS", ())
    table = table_with(shop, name, value)
    outcome = rewritten(shop, table, strategy)
    message = f"ICM-180 {table}: write.parquet.{name} = {value}; {rule}. Fix: {fix}"
    assert [(b.outcome, b.reason, b.message) for b in outcome.batches] == [
        (OutcomeStatus.UNSUPPORTED, Reason.WRITER_PROPERTY, message)
    ]
    assert len(shop.rows(table)) == 20


def test_codec_whose_class_spark_has_is_left_to_native(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_with(shop, "compression-codec", "lzo")
    has = CLASSES_OF_CODECS | {"lzo": "org.apache.hadoop.io.compress.GzipCodec"}
    monkeypatch.setattr(write_rows, "CLASSES_OF_CODECS", has)
    outcome = rewritten(shop, table)
    assert "ClassNotFoundException: com.hadoop.compression.lzo.LzoCodec" in outcome.batches[0].message


@pytest.mark.drawn(2)
@pytest.mark.parametrize("codec", ["zstd", "gzip", "snappy", "lz4", "lz4_raw", "uncompressed"])
def test_codec_that_columnar_writes_is_one_that_spark_reads(shop: Workshop, codec: str) -> None:
    table = table_with(shop, "compression-codec", codec)
    outcome = rewritten(shop, table)
    assert [(b.outcome, b.message) for b in outcome.batches] == [(OutcomeStatus.IMPROVED, "")]
    assert len(shop.rows(table)) == 20


@pytest.mark.parametrize(
    ("prefix", "name", "value", "feature"),
    [
        ("write.parquet", "compression-codec", "lz4", "codec lz4"),
        ("write.format", "default", "orc", "data orc"),
    ],
)
def test_rewrite_that_a_named_reader_would_lose_the_table_by_is_refused(
    shop: Workshop, prefix: str, name: str, value: str, feature: str
) -> None:
    table = table_with(shop, name, value, prefix)
    outcome = rewritten(shop, table, RewriteStrategy.NATIVE, Reader.DUCKDB, Reader.SPARK)
    message = (
        f"ICM-182 {table}: a rewrite would write {feature}, not read by duckdb of the policy key readers. Fix: set "
        "write.format.default or write.parquet.compression-codec of the table to what they read, or change the policy key."
    )
    assert [(b.outcome, b.reason, b.message) for b in outcome.batches] == [
        (OutcomeStatus.UNSUPPORTED, Reason.REFUSED, message)
    ]
    outcome = rewritten(shop, table, RewriteStrategy.NATIVE, Reader.CLICKHOUSE, Reader.SPARK)
    assert outcome.outcome is OutcomeStatus.IMPROVED


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("codec", "level", "rule"),
    [("zstd", "high", "a whole number"), ("gzip", "10", "a whole number from -1 to 9")],
)
def test_conversion_with_a_level_that_is_none_is_refused_with_the_property(
    shop: Workshop, codec: str, level: str, rule: str
) -> None:
    table = table_with(shop, "compression-codec", codec)
    shop.writers.delete_where(shop.writers.load(table), [{"id": 3}, {"id": 14}])
    shop.sql(f"alter table {table} set tblproperties ('write.delete.parquet.compression-level'='{level}')")
    with pytest.raises(RefusedError) as refused:
        shop.engine.write(shop.cleaning(table, Operation.CONVERT_EQUALITY_DELETES), FULL)
    assert str(refused.value) == (
        f"ICM-180 {table}: write.delete.parquet.compression-level = {level}; it must be {rule}. "
        "Fix: correct or unset the property of the table."
    )


def codecs(shop: Workshop, table: str) -> set[str]:
    """The codecs of the live data files."""
    found = set()
    for path in paths(shop, table):
        metadata = pq.read_metadata(path.removeprefix("file:"))
        found |= {metadata.row_group(0).column(i).compression for i in range(metadata.num_columns)}
    return found


@pytest.mark.drawn(2)
@pytest.mark.parametrize("strategy", [RewriteStrategy.COLUMNAR, RewriteStrategy.NATIVE])
@pytest.mark.parametrize(
    ("written", "declared", "expected"),
    [("snappy", None, "SNAPPY"), ("zstd", None, "ZSTD"), ("zstd", "gzip", "GZIP")],
)
def test_table_without_a_codec_keeps_that_of_its_files_and_a_declared_one_wins(
    shop: Workshop, written: str, declared: str | None, expected: str, strategy: RewriteStrategy
) -> None:
    table = table_with(shop, "compression-codec", written)
    shop.sql(f"insert overwrite {table} select id from range(0, 20, 1, 2)")
    assert codecs(shop, table) == {written.upper()}
    change = f"set tblproperties ('{CODEC}'='{declared}')" if declared else f"unset tblproperties ('{CODEC}')"
    shop.sql(f"alter table {table} {change}")
    assert rewritten(shop, table, strategy).outcome is OutcomeStatus.IMPROVED
    assert codecs(shop, table) == {expected}
    assert len(shop.rows(table)) == 20


def test_most_bytes_decide_the_codec_of_files_with_several(shop: Workshop) -> None:
    table = table_with(shop, "compression-codec", "snappy")
    shop.sql(f"insert into {table} select id from range(1000000, 1001000, 1, 1)")
    shop.sql(f"alter table {table} unset tblproperties ('{CODEC}')")
    assert codecs(shop, table) == {"ZSTD", "SNAPPY"}
    assert rewritten(shop, table).outcome is OutcomeStatus.IMPROVED
    assert codecs(shop, table) == {"SNAPPY"}
