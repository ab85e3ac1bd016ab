"""A table that Spark writes through a second catalog: its files stay, under every name of a metadata file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint_tests.support.spark.housekeeping import Keeper
from iceberg_maint_tests.support.spark.workshop import Workshop, workshop_of

pytestmark = pytest.mark.spark
ORPHANS = Operation.REMOVE_ORPHAN_FILES


@pytest.fixture(scope="module")
def workshop(spark: SparkSession, lake_dir: Path) -> Workshop:
    return workshop_of(spark, lake_dir)


@pytest.fixture
def keeper(workshop: Workshop, tmp_path: Path) -> Keeper:
    return Keeper(workshop, scratch=tmp_path / "scratch")


def registered(workshop: Workshop, name: str, folder: Path) -> str:
    """The table's name in a second catalog, in a database of its own."""
    second = f"second_{name.rpartition('.')[2]}"
    settings = {r["key"]: r["value"] for r in workshop.sql("SET").collect()}
    for key, value in settings.items():
        if key == "spark.sql.catalog.lake" or key.startswith("spark.sql.catalog.lake."):
            other = re.sub("^spark.sql.catalog.lake", f"spark.sql.catalog.{second}", key)
            uri = f"jdbc:sqlite:{folder}/second.db"
            workshop.spark.conf.set(other, uri if other.endswith(".uri") else value)
    below = name.partition(".")[2]
    workshop.sql(f"create namespace if not exists {second}.{below.rpartition('.')[0]}")
    pointer = workshop.catalog.pin(TableId.parse(name)).metadata_location
    workshop.sql(f"call {second}.system.register_table(table => '{below}', metadata_file => '{pointer}')")
    return f"{second}.{below}"


@pytest.mark.drawn(1)
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_table_that_spark_writes_through_a_second_catalog_is_refused(
    keeper: Keeper, workshop: Workshop, tmp_path: Path, codec: str
) -> None:
    name = workshop.new_name("second_catalog")
    workshop.sql(f"create namespace if not exists {name.rpartition('.')[0]}")
    workshop.sql(
        f"create table {name} (id bigint) using iceberg"
        f" tblproperties ('write.metadata.compression-codec' = '{codec}')"
    )
    workshop.sql(f"insert into {name} values (1)")
    theirs = registered(workshop, name, tmp_path)
    workshop.sql(f"insert into {theirs} values (2)")
    outcome = keeper.run(name, ORPHANS, days=10)
    assert (outcome.outcome, outcome.reason) == (OutcomeStatus.UNSUPPORTED, Reason.REFUSED)
    [batch] = outcome.batches
    ending = ".gz.metadata.json" if codec == "gzip" else ".metadata.json"
    assert re.search(rf"/00002-[0-9a-f-]+{ending} \(last sequence number 2, ", batch.message)
    assert [r["id"] for r in workshop.sql(f"select id from {theirs} order by id").collect()] == [1, 2]

    workshop.sql(f"insert into {name} values (3)")
    workshop.sql(f"insert into {theirs} values (4)")
    workshop.sql(f"insert into {name} values (5)")
    outcome = keeper.run(name, ORPHANS, days=11)
    assert "is a version of this table that is not in its metadata log" in outcome.batches[0].message
    assert [r["id"] for r in workshop.sql(f"select id from {theirs} order by id").collect()] == [1, 2, 4]
