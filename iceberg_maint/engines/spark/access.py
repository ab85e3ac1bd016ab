"""What a session reaches: a table with its jars and credentials, requirements of a commit, workers of a cluster.

PyIceberg reads the same catalog with clients and credentials of its own, so its success proves nothing about Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from iceberg_maint.core.outcomes.failures import is_environment
from iceberg_maint.engines.spark.commit.table_operations import refusal
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.java_errors import JVM_ERRORS, all_lines, causes
from iceberg_maint.engines.spark.rewrite.columnar.job import Workers
from iceberg_maint.errors import IcebergMaintError, UnreadableTableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MISSING_CLASS = ("ClassNotFoundException", "NoClassDefFoundError")
_HADOOP = "org.apache.iceberg.hadoop.HadoopFileIO"
_NO_FILE_SYSTEM = "UnsupportedFileSystemException"
"""Hadoop's file systems were asked: Iceberg's default FileIO of a catalog other than REST."""


def read_table(spark: SparkSession, table: str, metadata_location: str) -> str:
    """Loads a table through Spark's catalog and reads of its manifest list through the table's FileIO. Returns the name
    of the FileIO's class. `metadata_location` is where the catalog says that its metadata file is.

    Raises IcebergMaintError ICM-133 if credentials, a connection or a class are missing, UnreadableTableError
    ICM-101 for any other error.
    """
    bridge = Bridge(spark)
    bridge.activate()
    try:
        _check_file_system(bridge, table.partition(".")[0], metadata_location)
        java_table = bridge.load_table(table)
        io, snapshot = java_table.io(), java_table.currentSnapshot()
        if snapshot is not None:
            # The metadata file may have come from the catalog. Of the store this needs the same rights as a scan.
            stream = io.newInputFile(snapshot.manifestListLocation()).newStream()
            try:
                # The stream of S3FileIO sends its request at the first read.
                stream.read()
            finally:
                stream.close()
        return str(io.getClass().getSimpleName())
    except JVM_ERRORS as why:
        chain = causes(why)
        message = f"Spark cannot read {table}: {all_lines(why)}."
        if not is_environment(chain):
            raise UnreadableTableError("ICM-101", message, "correct what the message names.") from why
        raise IcebergMaintError("ICM-133", message, _fix(chain)) from why


def _check_file_system(bridge: Bridge, catalog: str, location: str) -> None:
    """Raises Hadoop's error if it has no file system for the location, and the catalog reads through Hadoop. Iceberg
    would repeat the read for minutes."""
    conf, prefix = bridge.conf(), f"spark.sql.catalog.{catalog}"
    # The FileIO of a REST catalog chooses by the location.
    default = None if conf.get(f"{prefix}.type") == "rest" else _HADOOP
    if conf.get(f"{prefix}.io-impl", default) == _HADOOP and (scheme := urlsplit(location).scheme):
        hadoop = bridge.scala_context.hadoopConfiguration()
        bridge.jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, hadoop)


def _fix(chain: tuple[tuple[str, str], ...]) -> str:
    if any(_NO_FILE_SYSTEM in name for name, _ in chain):
        return (
            "set io-impl in the properties of the catalog to the FileIO of the store "
            "(for S3: org.apache.iceberg.aws.s3.S3FileIO), and list its jar in spark.jars."
        )
    if any(sign in name or sign in text for name, text in chain for sign in _MISSING_CLASS):
        return (
            "list the jar that has this class in spark.jars; for S3 and Glue that is iceberg-aws-bundle of the "
            "Iceberg version that Spark runs with. If no jar has it, correct io-impl in the properties of the catalog."
        )
    return (
        "give Spark's Java clients the address and the credentials, too: as properties of the catalog (for S3: "
        "s3.endpoint, s3.access-key-id, s3.secret-access-key, client.region), or in the environment "
        "(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION). The client of Glue reads only the environment."
    )


def weak_requirements(spark: SparkSession, table: str) -> str | None:
    """Returns why the table's catalog does not take the requirements of our commits. None if it takes them or compares
    the base of a commit itself. Nothing is changed. Raises what the catalog raises."""
    bridge = Bridge(spark)
    bridge.activate()
    return refusal(bridge, bridge.load_table(table).operations())


def executors_problem(spark: SparkSession) -> str:
    """Returns why the executors' Python workers cannot run the strategy columnar, "" if they can. Runs a job on a cluster."""
    bridge = Bridge(spark)
    bridge.activate()
    return Workers(bridge).problem()
