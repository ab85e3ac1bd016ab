from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace

import pytest

from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.model.reasons import Verdict
from iceberg_maint.demo import tables
from iceberg_maint.demo.heal import state_of
from iceberg_maint.demo.store import ORPHANS
from iceberg_maint.demo.tables import SMALL, TABLES
from iceberg_maint.demo.workspace import CATALOG, NAMESPACE, table_id
from iceberg_maint_tests.demo.conftest import SmallLake
from iceberg_maint_tests.support.context import changed

pytestmark = pytest.mark.slow


def test_tables_are_ten_with_names_of_their_own() -> None:
    assert len({t.name for t in TABLES}) == len(TABLES) == 10
    assert TABLES[0].full_name == "lake.demo.flights_by_month"


def test_flights_by_month_has_a_small_file_per_day(small_lake: SmallLake) -> None:
    tables.build_flights_by_month(small_lake.writers)
    measured = small_lake.measure("flights_by_month")
    january = measured.partitions["time_hour_month=2013-01"]
    assert list(measured.partitions) == ["time_hour_month=2013-01"]
    assert (january.data_files, january.small_files) == (6, 6)
    assert january.spec_ids == (0,)
    assert measured.table_health.snapshots == 6


def test_flights_by_month_forgets_snapshots_and_keeps_files(
    small_lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "SNAPSHOTS_KEPT", 4)
    tables.build_flights_by_month(small_lake.writers)
    measured = small_lake.measure("flights_by_month")
    assert measured.total().data_files == 6
    assert measured.table_health.snapshots == 3


def test_weather_is_unpartitioned_with_a_file_per_batch(small_lake: SmallLake) -> None:
    tables.build_weather(small_lake.writers)
    measured = small_lake.measure("weather")
    assert list(measured.partitions) == ["__all__"]
    assert measured.partitions["__all__"].small_files == SMALL.weather_batches
    assert measured.total().records == 26_115


@pytest.mark.variant
def test_weather_by_day_is_healthy_but_for_its_housekeeping(small_lake: SmallLake) -> None:
    tables.build_weather_by_day(small_lake.writers)
    seen = state_of(small_lake.context, table_id("weather_by_day"))
    assert seen.decision.verdict is Verdict.SKIP
    assert seen.housekeeping == ("rewrite_manifests", "expire_snapshots", "remove_orphan_files")
    health = seen.measured.table_health
    assert (health.snapshots, health.manifests) == (SMALL.weather_days, SMALL.weather_days)
    month_ago = time.time() - 29 * 86_400
    left = [p for p in small_lake.place.root.rglob("*killed*.parquet") if p.stat().st_mtime < month_ago]
    assert len(left) == ORPHANS


@pytest.mark.variant
def test_lineitem_is_unhealthy_in_both_of_its_specs(small_lake: SmallLake) -> None:
    tables.build_lineitem(small_lake.writers)
    parts = small_lake.measure("lineitem").partitions
    by_spec = Counter(p.spec_ids for p in parts.values())
    assert by_spec == {(0,): 7, (1,): 14}
    assert parts["l_shipdate_year=1995"].small_files == SMALL.lineitem_batches
    assert parts["spec=1/l_shipdate_year=1995/l_orderkey_bucket_2=0"].small_files == SMALL.lineitem_batches


def test_control_is_one_file_per_partition(small_lake: SmallLake) -> None:
    tables.build_control(small_lake.writers)
    parts = small_lake.measure("control").partitions
    assert {key: p.data_files for key, p in parts.items()} == {
        "engines=1": 1,
        "engines=2": 1,
        "engines=3": 1,
        "engines=4": 1,
    }


@pytest.fixture
def spark_lake(small_lake: SmallLake, spark) -> SmallLake:
    """The small lake's tables in the shared session's catalog."""
    from pyiceberg.catalog import load_catalog

    from iceberg_maint.catalog.adapter import PyIcebergCatalog

    conf = {k: spark.conf.get(f"spark.sql.catalog.{CATALOG}.{k}") for k in ("uri", "warehouse")}
    properties = {
        "type": "sql",
        "uri": "sqlite:///" + conf["uri"].removeprefix("jdbc:sqlite:").split("?")[0],
        "warehouse": conf["warehouse"],
    }
    catalogs = {CATALOG: PyIcebergCatalog(CATALOG, properties)}
    small_lake.context = changed(small_lake.context, catalogs=catalogs)
    catalog = load_catalog(CATALOG, **properties)
    catalog.create_namespace_if_not_exists(NAMESPACE)
    small_lake.writers = replace(small_lake.writers, catalog=catalog, session=lambda: spark)
    return small_lake


@pytest.mark.spark
@pytest.mark.drawn(1)
@pytest.mark.parametrize("version", [2, 3])
def test_updates_leave_deletes_of_the_formats_own_kind(spark_lake: SmallLake, version: int) -> None:
    name = f"flights_updates_v{version}"
    getattr(tables, f"build_{name}")(spark_lake.writers)
    measured = spark_lake.measure(name)
    assert measured.format_version == version
    assert set(measured.partitions) == {"origin=EWR", "origin=JFK", "origin=LGA"}
    total = measured.total()
    assert total.small_files == total.data_files > 9
    assert bool(total.position_delete_files) == (version == 2)
    assert bool(total.deletion_vectors) == (version == 3)
    assert total.delete_ratio > 0.3


@pytest.mark.spark
def test_captured_changes_leave_equality_deletes(spark_lake: SmallLake, spark) -> None:
    tables.build_cdc_planes(spark_lake.writers)
    health: PartitionHealth = spark_lake.measure("cdc_planes").partitions["__all__"]
    assert (health.data_files, health.equality_delete_files, health.equality_delete_records) == (4, 3, 150)
    assert health.applicable_equality_delete_files == 3
    # Every change replaced one plane: there are as many as before, and seats grew.
    assert spark.table("lake.demo.cdc_planes").count() == 3322


@pytest.mark.spark
@pytest.mark.variant
def test_captured_changes_of_a_composite_key_in_format_version_3(spark_lake: SmallLake, spark) -> None:
    tables.build_cdc_flights_v3(spark_lake.writers)
    measured = spark_lake.measure("cdc_flights_v3")
    assert measured.format_version == 3
    total = measured.total()
    assert (total.data_files, total.equality_delete_files, total.equality_delete_records) == (4, 3, 150)
    assert spark.table("lake.demo.cdc_flights_v3").count() == SMALL.cdc_rows


@pytest.mark.spark
@pytest.mark.variant
def test_captured_changes_delete_within_the_partition_of_the_key(spark_lake: SmallLake, spark) -> None:
    tables.build_cdc_weather(spark_lake.writers)
    parts = spark_lake.measure("cdc_weather").partitions
    assert {key: (p.data_files, p.applicable_equality_delete_files) for key, p in parts.items()} == {
        "origin=EWR": (7, 6),
        "origin=JFK": (7, 6),
        "origin=LGA": (7, 6),
    }
    assert spark.table("lake.demo.cdc_weather").count() == 26_115
