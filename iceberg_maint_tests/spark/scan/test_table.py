"""The values of a Java table: names and types of its columns, and its partition specs."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.engines.spark.scan.scan import load_table_info, partition_specs, spec_values
from iceberg_maint_tests.support.spark.workshop import Workshop, workshop_of

pytestmark = pytest.mark.spark

_FLAT = (
    "b boolean, i int, l bigint, f float, d double, n decimal(9, 2), day date, t timestamp, z timestamp_ntz, s string,"
    " x binary"
)


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    made = workshop_of(spark, lake_dir)
    made.sql("create namespace if not exists lake.tables")
    return made


@pytest.mark.parametrize("columns", [_FLAT, f"{_FLAT}, st struct<a: int, m: map<string, array<date>>>"])
def test_load_table_info_has_the_types_that_iceberg_states(shop: Workshop, columns: str) -> None:
    name = shop.new_name("tables")
    shop.sql(f"create table {name} ({columns}) using iceberg")
    shop.writers.append(shop.writers.load(name), [{"l": 1}])
    java = shop.bridge.load_table(name)
    info = load_table_info(shop.bridge, java, name, int(java.currentSnapshot().snapshotId()))
    by_id = shop.bridge.iceberg.types.TypeUtil.indexById(java.schema().asStruct())
    assert info.types == {int(i): str(by_id[i].type().toString()) for i in by_id}
    assert info.columns == tuple(str(f.name()) for f in java.schema().columns())
    assert info.field_ids == {str(f.name()): int(f.fieldId()) for f in java.schema().columns()}


def test_partition_specs_that_are_known_are_those_of_the_table(shop: Workshop) -> None:
    """Tables of one schema and spec share the values. Another name, transform or type has others."""
    found = []
    for columns, by in (
        ("a int, b string", "bucket(4, a)"),
        ("a int, b string", "bucket(8, a)"),
        ("a bigint, b string", "a"),
        ("a int, b string", "a"),
        ("a int, b string", "bucket(4, a)"),
    ):
        name = shop.new_name("tables")
        shop.sql(f"create table {name} ({columns}) using iceberg partitioned by ({by})")
        java = shop.bridge.load_table(name)
        found.append(partition_specs(shop.bridge, java))
        assert found[-1] == spec_values(shop.bridge, java.specs().values())
    assert found[0] is found[4]
    shop.sql(f"alter table {name} add partition field b")
    java = shop.bridge.load_table(name)
    assert sorted(partition_specs(shop.bridge, java)) == [0, 1]
