"""Files that other writers made and `add_files` imported: their rows are those that Iceberg's reader reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.policy.data import RewriteStrategy
from iceberg_maint_tests.support.spark.housekeeping import Keeper
from iceberg_maint_tests.support.spark.unhealthy_tables import workshop
from iceberg_maint_tests.support.spark.workshop import FULL, Workshop

pytestmark = pytest.mark.spark

COLUMNAR = replace(
    FULL, rewrite_data_files=replace(FULL.rewrite_data_files, strategy=RewriteStrategy.COLUMNAR)
)


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    return workshop(spark, lake_dir)


def imported(shop: Workshop, folder: Path, columns: str, partition: str = "") -> str:
    """Imports the Parquet files of a folder to a new table. Returns its name."""
    name = shop.new_name("native")
    shop.sql(f"create table {name} ({columns}) using iceberg {partition}")
    catalog, _, rest = name.partition(".")
    shop.sql(f"call {catalog}.system.add_files(table => '{rest}', source_table => '`parquet`.`{folder}`')")
    return name


def notes(shop: Workshop, name: str) -> list[str]:
    """Rewrites all files of the table. Returns the notes of the batches."""
    outcome = Keeper(shop, COLUMNAR).run(name, Operation.REWRITE_DATA_FILES, force=True)
    assert outcome.outcome is OutcomeStatus.IMPROVED
    return [b.message for b in outcome.batches]


@pytest.mark.variant
def test_partition_column_that_files_have_too_keeps_the_value_of_the_partition(
    shop: Workshop, tmp_path: Path
) -> None:
    for value in ("a", "b"):
        (tmp_path / f"p={value}").mkdir()
        for number, other in enumerate(("z", None)):
            rows = pa.table({"id": [2 * number, 2 * number + 1], "p": pa.array([other] * 2, pa.string())})
            pq.write_table(rows, tmp_path / f"p={value}" / f"{number}.parquet", write_statistics=False)
    name = imported(shop, tmp_path, "id bigint, p string", "partitioned by (p)")
    before = shop.rows(name)
    assert before == [(n, p) for n in range(4) for p in ("a", "b")]
    assert notes(shop, name) == [""]
    assert shop.rows(name) == before
    found = [shop.spark.table(name).where(f"p = '{p}'").count() for p in ("a", "b", "z")]
    assert found == [4, 4, 0]


def test_files_without_field_ids_are_written_by_native_where_no_name_mapping_gives_them(
    shop: Workshop, tmp_path: Path
) -> None:
    for number in range(2):
        pq.write_table(pa.table({"id": [number], "s": [str(number)]}), tmp_path / f"{number}.parquet")
    name = imported(shop, tmp_path, "id bigint, s string")
    shop.sql(f"alter table {name} unset tblproperties ('schema.name-mapping.default')")
    before = shop.rows(name)
    [note] = notes(shop, name)
    assert note.endswith("has no field ids and the table has no name mapping")
    assert shop.rows(name) == before == [(0, "0"), (1, "1")]


def add_by_pyiceberg(shop: Workshop, name: str, folder: Path) -> None:
    """Imports the files with split offsets, which Spark's `add_files` omits."""
    properties = {k: v for k, v in shop.catalog._properties.items() if k != "type"}
    catalog = SqlCatalog("lake", **properties)
    table = catalog.load_table(name.removeprefix("lake."))
    table.add_files([path.as_uri() for path in sorted(folder.glob("*.parquet"))])
    catalog.close()
    shop.sql(f"refresh table {name}")


@pytest.mark.drawn(1)
@pytest.mark.parametrize("importer", ["spark", "pyiceberg"])
@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize(("column", "zone"), [("timestamp", "UTC"), ("timestamp_ntz", None)])
def test_timestamps_in_milliseconds_of_a_dictionary_are_those_of_the_file_after_native(
    shop: Workshop, tmp_path: Path, column: str, zone: str | None, mapped: bool, importer: str
) -> None:
    times = pa.array([-2_208_988_800_000, 1_577_934_245_006], pa.timestamp("ms", zone))
    for number in range(2):
        pq.write_table(pa.table({"id": [number] * 2, "t": times}), tmp_path / f"{number}.parquet")
    if importer == "spark":
        name = imported(shop, tmp_path, f"id bigint, t {column}")
    else:
        name = shop.new_name("native")
        shop.sql(f"create table {name} (id bigint, t {column}) using iceberg")
        add_by_pyiceberg(shop, name, tmp_path)
    if not mapped:
        shop.sql(f"alter table {name} unset tblproperties ('schema.name-mapping.default')")
    assert (
        Keeper(shop, FULL).run(name, Operation.REWRITE_DATA_FILES, force=True).outcome
        is OutcomeStatus.IMPROVED
    )
    texts = {str(time).removesuffix("Z") for _, time in shop.writers.rows(name)}
    assert texts == {"1900-01-01T00:00", "2020-01-02T03:04:05.006"}
