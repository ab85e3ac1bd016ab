"""rewrite_data_files brings rows back whose equality delete a REPLACE commit has converted to a position delete

Versions: Iceberg 1.12.0, Spark 4.1.4, format version 2.

Expected: a writer commits an equality delete during a compaction, and a maintainer turns it into a position delete of the same
sequence number. The compaction is refused, as a file that it replaces has a new position delete.

Spec: "replace -- Data and delete files were added and removed without changing table data" (Table Spec, Snapshots)

Actual: Iceberg validates the delete files of `overwrite` and `delete` snapshots only (MergingSnapshotProducer,
VALIDATE_ADDED_DELETE_FILES_OPERATIONS). The position delete names a file that is gone; the row is back.
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


def equality_delete(value):
    """An equality delete file by column id: a data file of a table with the same field ids."""
    spark.sql(f"CREATE TABLE local.db.deletes USING iceberg AS SELECT {value} AS id")
    file = load("local.db.deletes").newScan().planFiles().iterator().next().file()
    ids = spark.sparkContext._gateway.new_array(spark._jvm.int, 1)
    ids[0] = 1
    builder = spark._jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(load().specs().get(0))
    builder = builder.ofEqualityDeletes(ids).withPath(file.location()).withFormat(file.format())
    return builder.withFileSizeInBytes(file.fileSizeInBytes()).withRecordCount(1).build()


def compact(other):
    """Runs stock rewrite_data_files; `other` runs between its read and its commit."""
    iceberg, gateway = spark._jvm.org.apache.iceberg, spark.sparkContext._gateway
    ensure_callback_server_started(gateway)
    table = iceberg.BaseTable(Racing(load().operations(), other), "t")
    iceberg.spark.actions.SparkActions.get().rewriteDataFiles(table).option("rewrite-all", "true").execute()


def reproduce():
    spark.sql("CREATE TABLE local.db.t (id int) TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    spark.sql("INSERT INTO local.db.t SELECT /*+ COALESCE(1) */ * FROM VALUES (1), (2)")
    spark.sql("ALTER TABLE local.db.t CREATE BRANCH work")
    spark.sql("DELETE FROM local.db.t.branch_work WHERE id = 2")  # writes the position delete file
    [positions] = load().newScan().useRef("work").planFiles().iterator().next().deletes()

    def other():
        load().newRowDelta().addDeletes(equality_delete(2)).commit()
        [old] = load().newScan().planFiles().iterator().next().deletes()
        load().newRewrite().deleteFile(old).addFile(positions, old.dataSequenceNumber()).commit()

    compact(other)
    rows = sorted(row.id for row in spark.table("local.db.t").collect())
    return f"row 2 was deleted and is back: {rows}" if rows != [1] else None


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
