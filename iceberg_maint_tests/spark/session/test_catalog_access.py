"""Reading a table through Spark's own clients, with what they lack."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from iceberg_maint.errors import EXIT_FAILED, EXIT_REFUSED, IcebergMaintError
from iceberg_maint.spark.jvm.bridge import Bridge
from iceberg_maint.spark.session.catalog_access import read_table
from iceberg_maint.spark.session.settings import catalog_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def with_catalog(spark: SparkSession, name: str, kind: str, uri: str, **properties: str) -> None:
    """Adds a catalog to the session. Spark makes it at its first use."""
    options = {key.replace("_", "-"): value for key, value in properties.items()}
    for key, value in catalog_conf(name, kind, uri, "file:///nowhere", options).items():
        spark.conf.set(key, value)


def test_table_that_spark_reads_names_its_file_io(spark: SparkSession) -> None:
    spark.sql("CREATE TABLE lake.db.reached (id bigint) USING iceberg")
    assert read_table(spark, "lake.db.reached") == "HadoopFileIO"
    spark.sql("INSERT INTO lake.db.reached VALUES (1)")
    assert read_table(spark, "lake.db.reached") == "HadoopFileIO"
    snapshot = Bridge(spark).load_table("lake.db.reached").currentSnapshot()
    Path(snapshot.manifestListLocation().removeprefix("file:")).unlink()
    with pytest.raises(IcebergMaintError, match=r"ICM-101 Spark cannot read lake.db.reached: ") as error:
        read_table(spark, "lake.db.reached")
    assert error.value.exit_code == EXIT_REFUSED


@pytest.mark.parametrize(
    ("file_io", "missing"),
    [
        ("org.example.MissingFileIO", "org.example.MissingFileIO"),
        ("org.apache.iceberg.aws.s3.S3FileIO", "software/amazon/awssdk"),
    ],
)
def test_class_that_is_missing_is_an_error_that_names_the_jar(
    spark: SparkSession, tmp_path: Path, file_io: str, missing: str
) -> None:
    name = file_io.rpartition(".")[2].lower()
    with_catalog(spark, name, "jdbc", f"sqlite:///{tmp_path}/c.db", io_impl=file_io)
    with pytest.raises(IcebergMaintError, match=f"ICM-133 Spark cannot read {name}.db.t: ") as error:
        read_table(spark, f"{name}.db.t")
    assert missing in error.value.message
    assert error.value.fix.startswith("list the jar that has this class in spark.jars;")
    assert error.value.exit_code == EXIT_FAILED


def test_catalog_that_does_not_answer_is_an_error_of_its_address(spark: SparkSession) -> None:
    with_catalog(spark, "closed", "rest", "http://127.0.0.1:1")
    with pytest.raises(IcebergMaintError, match=r"ICM-133 Spark cannot read closed.db.t: .*refused") as error:
        read_table(spark, "closed.db.t")
    assert error.value.fix.startswith("give Spark's Java clients the address and the credentials, too:")
