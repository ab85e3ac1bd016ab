"""Reading a table through Spark's own clients, with what they lack."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from iceberg_maint.engines.spark.access import read_table
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.session.settings import catalog_conf
from iceberg_maint.errors import EXIT_FAILED, EXIT_REFUSED, IcebergMaintError

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
    assert read_table(spark, "lake.db.reached", "file:///t/v1.metadata.json") == "HadoopFileIO"
    spark.sql("INSERT INTO lake.db.reached VALUES (1)")
    assert read_table(spark, "lake.db.reached", "file:///t/v1.metadata.json") == "HadoopFileIO"
    snapshot = Bridge(spark).load_table("lake.db.reached").currentSnapshot()
    manifest_list = Path(snapshot.manifestListLocation().removeprefix("file:"))
    data = manifest_list.read_bytes()
    # Like S3FileIO, the local file system opens the file and fails at its first read: of a wrong checksum.
    manifest_list.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(IcebergMaintError, match=r"Spark cannot read lake.db.reached: .*Checksum"):
        read_table(spark, "lake.db.reached", "file:///t/v1.metadata.json")
    manifest_list.unlink()
    with pytest.raises(IcebergMaintError, match=r"ICM-101 Spark cannot read lake.db.reached: ") as error:
        read_table(spark, "lake.db.reached", "file:///t/v1.metadata.json")
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
        read_table(spark, f"{name}.db.t", "file:///t/v1.metadata.json")
    assert missing in error.value.message
    assert error.value.fix.startswith("list the jar that has this class in spark.jars;")
    assert error.value.exit_code == EXIT_FAILED


def test_store_without_a_file_io_is_an_error_that_names_the_property(
    spark: SparkSession, tmp_path: Path
) -> None:
    with_catalog(spark, "hadoopio", "jdbc", f"sqlite:///{tmp_path}/c.db")
    with pytest.raises(IcebergMaintError, match='No FileSystem for scheme "s3"') as error:
        read_table(spark, "hadoopio.db.t", "s3://bucket/t/metadata/v1.metadata.json")
    assert error.value.code == "ICM-133"
    assert error.value.fix.startswith(
        "set io-impl in the properties of the catalog to the FileIO of the store"
    )


def test_catalog_that_does_not_answer_is_an_error_of_its_address(spark: SparkSession) -> None:
    with_catalog(spark, "closed", "rest", "http://127.0.0.1:1")
    with pytest.raises(IcebergMaintError, match=r"ICM-133 Spark cannot read closed.db.t: .*refused") as error:
        read_table(spark, "closed.db.t", "file:///t/v1.metadata.json")
    assert error.value.fix.startswith("give Spark's Java clients the address and the credentials, too:")
