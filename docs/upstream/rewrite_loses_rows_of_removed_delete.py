"""rewrite_data_files loses rows whose delete file was removed during it

Versions: Iceberg 1.12.0, Spark 4.1.4, format version 2.

Expected: a writer takes a delete file back (`RowDelta.removeDeletes`) while a compaction runs that has applied it. Its
rows are in the table again. The compaction is refused or keeps them.

Spec: "replace -- Data and delete files were added and removed without changing table data" (Table Spec, Snapshots); "the new
state of the table after each rewrite must be logically equivalent to the original table state" (javadoc of RewriteFiles)

Actual: RewriteFiles validates added delete files only. The replacement has no such rows, and the commit succeeds.
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
    spark.sql("CREATE TABLE local.db.t (id int) USING iceberg TBLPROPERTIES ('format-version' = '2')")
    spark.sql("INSERT INTO local.db.t VALUES (1), (2)")
    delete = equality_delete(2)
    load().newRowDelta().addDeletes(delete).commit()
    compact(lambda: load().newRowDelta().removeDeletes(delete).commit())
    rows = sorted(row.id for row in spark.table("local.db.t").collect())
    return f"the delete of row 2 was removed and the row is gone: {rows}" if rows != [1, 2] else None


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
