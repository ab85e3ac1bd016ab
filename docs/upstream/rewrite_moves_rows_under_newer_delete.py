"""rewrite_data_files loses live rows that it moves into the partition of an equality delete

Versions: Iceberg 1.12.0, Spark 4.1.4, format version 2.

Expected: the data file has the unpartitioned spec 0. During the compaction a writer commits an equality delete in the
partition a of spec 1. The delete does not apply to the file, so its rows stay.

Spec: "The data file's partition (both spec id and partition values) is equal to the delete file's partition or the delete
file's partition spec is unpartitioned" (Table Spec, Scan Planning, when an equality delete applies)

Actual: the compaction writes the rows to partition a of spec 1, with the sequence number of the snapshot that was read. The
newer delete applies to the replacement. No validation compares the scopes.
"""

import os
import tempfile

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


class Racing:
    """Operations of a table on which another writer commits just before the compaction does."""

    def __init__(self, operations, other):
        self.operations, self.others = operations, [other]

    def __getattr__(self, name):
        return getattr(self.operations, name)

    def refresh(self):
        while self.others:
            self.others.pop()()
        return self.operations.refresh()

    class Java:
        implements = ("org.apache.iceberg.TableOperations",)


def load(name="local.db.t"):
    return spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)


def equality_delete(value, partition):
    """An equality delete file by column id: a data file of a table with the same field ids."""
    spark.sql(f"CREATE TABLE local.db.deletes USING iceberg AS SELECT {value} AS id")
    file = load("local.db.deletes").newScan().planFiles().iterator().next().file()
    ids = spark.sparkContext._gateway.new_array(spark._jvm.int, 1)
    ids[0] = 1
    builder = spark._jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(load().spec())
    builder = builder.ofEqualityDeletes(ids).withPath(file.location()).withFormat(file.format())
    return (
        builder.withFileSizeInBytes(file.fileSizeInBytes())
        .withRecordCount(1)
        .withPartitionPath(partition)
        .build()
    )


def compact(other):
    """Runs stock rewrite_data_files; `other` runs between its read and its commit."""
    iceberg, gateway = spark._jvm.org.apache.iceberg, spark.sparkContext._gateway
    ensure_callback_server_started(gateway)
    table = iceberg.BaseTable(Racing(load().operations(), other), "t")
    iceberg.spark.actions.SparkActions.get().rewriteDataFiles(table).option("rewrite-all", "true").execute()


def reproduce():
    spark.sql(
        "CREATE TABLE local.db.t (id int, cat string) USING iceberg TBLPROPERTIES ('format-version' = '2')"
    )
    spark.sql("INSERT INTO local.db.t VALUES (1, 'a'), (2, 'a')")
    spark.sql("ALTER TABLE local.db.t ADD PARTITION FIELD cat")
    compact(lambda: load().newRowDelta().addDeletes(equality_delete(2, "cat=a")).commit())
    rows = sorted(row.id for row in spark.table("local.db.t").collect())
    return f"row 2 is not in the scope of the delete and is gone: {rows}" if rows != [1, 2] else None


jars = os.environ.get("ICEBERG_JARS")  # without it Spark fetches PACKAGE
settings = {
    "spark.jars" if jars else "spark.jars.packages": jars or PACKAGE,
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.local": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.local.type": "hadoop",
    "spark.sql.catalog.local.cache-enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
}
with tempfile.TemporaryDirectory() as warehouse:
    settings["spark.sql.catalog.local.warehouse"] = warehouse
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    print("Iceberg", spark._jvm.org.apache.iceberg.IcebergBuild.version(), "Spark", spark.version)
    fault = reproduce()
    spark.stop()
print(f"FAULT: {fault}" if fault else "fixed")
raise SystemExit(1 if fault else 0)
