"""Pages that Iceberg's Java writer wrote, spliced, and read by Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from iceberg_maint.columnar.rewrite import rewrite
from iceberg_maint.columnar.splice import page_splice
from iceberg_maint.columnar.task import Encoding, InputFile, RewriteResult, RewriteTask
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy, RewriteStrategy
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint_tests.support.spark.unhealthy_tables import workshop
from iceberg_maint_tests.support.spark.workshop import FULL

pytestmark = pytest.mark.spark

TABLE = "lake.splice.plain"
ROWS = 20_000


@pytest.fixture(scope="module")
def task(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> RewriteTask:
    spark.sql("create namespace if not exists lake.splice")
    spark.sql(
        f"create table {TABLE} (id bigint not null, n int, text string, raw binary, small decimal(9, 2),"
        " big decimal(30, 2), day date, at timestamp, flag string, price double) using iceberg"
        " tblproperties ('write.parquet.compression-codec' = 'zstd')"
    )
    for k in range(3):
        rows = f"range({k * ROWS}, {(k + 1) * ROWS}, 1, 1)"
        spark.sql(
            f"insert into {TABLE} select id * 7919 % 1000003, if(id % 7 = 0, null, cast(id * 31 as int)),"
            " if(id % 9 = 0, null, concat('żółć ', sha2(cast(id as string), 256))), unhex(md5(cast(id as string))),"
            " cast(id * 37 % 999983 as decimal(9, 2)), cast(-id * 1000003 as decimal(30, 2)),"
            " date_add(date'1900-01-01', cast(id * 104729 % 60000 as int)), timestamp_micros(id * 1000003),"
            f" concat('f', id % 3), if(id % 5 = 0, double('nan'), id / 7) from {rows}"
        )
    bridge = Bridge(spark)
    catalog = bridge.iceberg.spark.Spark3Util.loadIcebergCatalog(bridge.session, "lake")
    table = catalog.loadTable(bridge.iceberg.catalog.TableIdentifier.parse("splice.plain"))
    files = spark.sql(
        f"select file_path, file_size_in_bytes, record_count from {TABLE}.files order by file_path"
    ).collect()
    return RewriteTask(
        inputs=tuple(InputFile(f[0], f[1], f[2], 1) for f in files),
        output_path=str(tmp_path_factory.mktemp("splice") / "out.parquet"),
        schema=str(bridge.iceberg.SchemaParser.toJson(table.schema())),
        format_version=2,
        encoding=Encoding(),
        splice=True,
    )


@pytest.fixture(scope="module")
def spliced(task: RewriteTask) -> RewriteResult:
    return rewrite(task)


def sums(spark: SparkSession, rows: Any) -> Any:
    rows.createOrReplaceTempView("spliced_rows")
    return spark.sql("select count(*), sum(cast(xxhash64(*) as decimal(38))) from spliced_rows").collect()


def test_unique_columns_of_icebergs_writer_are_spliced_and_spark_reads_their_rows(
    spark: SparkSession, task: RewriteTask, spliced: RewriteResult
) -> None:
    assert set(spliced.spliced) >= {1, 3, 4}
    assert not {9, 10} & set(spliced.spliced)
    assert spliced.record_count == 3 * ROWS
    assert sums(spark, spark.read.parquet(spliced.path)) == sums(spark, spark.table(TABLE))


@pytest.mark.variant
def test_row_ranges_of_the_page_index_select_the_same_rows(
    spark: SparkSession, spliced: RewriteResult
) -> None:
    for condition in (
        "id = 500000",
        "id between 1000 and 3000",
        "day = date'1950-05-05'",
        "text > 'żółć fff'",
    ):
        found = spark.read.parquet(spliced.path).where(condition)
        assert sums(spark, found) == sums(spark, spark.table(TABLE).where(condition)), condition


@pytest.mark.variant
def test_kept_row_groups_of_icebergs_writer_have_the_same_rows_and_ranges(
    spark: SparkSession, task: RewriteTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_splice, "LEAST_GROUP_BYTES", 1)
    encoding = Encoding(row_group_bytes=max(f.size_bytes for f in task.inputs))
    kept = rewrite(replace(task, output_path=task.output_path + ".kept", encoding=encoding))
    # Spark wrote 6 and 8 as required columns, and 10 has floats.
    assert (kept.spliced, kept.proof.difference) == ((1, 2, 3, 4, 5, 7, 9), "")
    assert len(kept.metrics.split_offsets) == len(task.inputs)
    for condition in (
        "true",
        "id = 500000",
        "id between 1000 and 3000",
        "flag = 'f1'",
        "day = date'1950-05-05'",
    ):
        found = spark.read.parquet(kept.path).where(condition)
        assert sums(spark, found) == sums(spark, spark.table(TABLE).where(condition)), condition
    count = "select count(*), count(*) filter (flag = 'f1'), sum(n) from read_parquet({})"
    of_inputs = [f.path.removeprefix("file:") for f in task.inputs]
    assert duckdb.sql(count.format([kept.path])).fetchall() == duckdb.sql(count.format(of_inputs)).fetchall()


@pytest.mark.variant
def test_metrics_of_a_spliced_file_equal_those_of_an_encoded_one(
    task: RewriteTask, spliced: RewriteResult
) -> None:
    encoded = rewrite(replace(task, splice=False, output_path=task.output_path + ".encoded"))
    sizes = spliced.metrics.column_sizes
    assert replace(encoded.metrics, column_sizes=sizes) == spliced.metrics
    assert pq.ParquetFile(spliced.path).schema == pq.ParquetFile(encoded.path).schema
    assert Path(encoded.path).stat().st_size >= spliced.size_bytes * 0.9


@pytest.mark.variant
def test_rows_of_copied_columns_keep_ids_and_sequence_numbers_after_a_merge(
    spark: SparkSession, lake_dir: Path
) -> None:
    shop = workshop(spark, lake_dir)
    name = shop.new_name("native")
    shop.sql(
        f"create table {name} (id bigint, text string) using iceberg tblproperties ('format-version' = '3',"
        " 'write.parquet.compression-codec' = 'zstd', 'write.merge.mode' = 'copy-on-write')"
    )
    rows = "select id, md5(cast(id as string)) as text from range({}, {}, {}, 1)"
    shop.sql(f"insert into {name} {rows.format(0, 2 * ROWS, 2)}")
    # The file then has the ids of the rows that stay, and neither ids nor sequence numbers of new ones.
    shop.sql(
        f"merge into {name} old using ({rows.format(0, 2 * ROWS, 1)}) new on old.id = new.id and old.id % 6 = 0"
        " when matched then update set text = concat('new ', new.text) when not matched and new.id % 2 = 1 then insert *"
    )
    before = shop.lineage(name)
    batch = shop.batch(name, strategy=RewriteStrategy.COLUMNAR, target_bytes=1 << 24)
    policy = RewriteDataFilesPolicy(strategy=RewriteStrategy.COLUMNAR)
    written = shop.engine.write(batch, replace(FULL, rewrite_data_files=policy))
    assert written.proof.equal
    shop.commit(batch, written)
    assert shop.lineage(name) == before
