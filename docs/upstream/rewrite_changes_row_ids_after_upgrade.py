"""rewrite_data_files changes row ids if the first commit after an upgrade to v3 happens during it

Versions: Iceberg 1.12.0, Spark 4.1.4, format version 3.

Expected: a v2 table is upgraded. A compaction reads it while its rows have no ids. A writer makes the first v3 commit, which
assigns ids to all rows. The compaction is refused, or its replacement keeps the assigned ids.

Spec: "When an existing row is moved to a different data file for any reason, writers should write `_row_id` [...]
according to the following rules: 1. The row's existing non-null `_row_id` must be copied into the new data file"
(Table Spec, Row Lineage)

Actual: the replacement has no ids. Its commit is not refused, and its rows inherit new ids.
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


def compact(other):
    """Runs stock rewrite_data_files; `other` runs between its read and its commit."""
    iceberg, gateway = spark._jvm.org.apache.iceberg, spark.sparkContext._gateway
    ensure_callback_server_started(gateway)
    table = iceberg.BaseTable(Racing(load().operations(), other), "t")
    iceberg.spark.actions.SparkActions.get().rewriteDataFiles(table).option("rewrite-all", "true").execute()


def reproduce():
    spark.sql("CREATE TABLE local.db.t (id int) USING iceberg TBLPROPERTIES ('format-version' = '2')")
    spark.sql("INSERT INTO local.db.t VALUES (1)")
    spark.sql("ALTER TABLE local.db.t SET TBLPROPERTIES ('format-version' = '3')")
    ids = []

    def look():
        ids.append({row.id: row._row_id for row in spark.sql("SELECT id, _row_id FROM local.db.t").collect()})

    def other():
        spark.sql("INSERT INTO local.db.t VALUES (2)")
        look()

    compact(other)
    look()
    before, after = ids
    return f"row ids are {before} before the commit and {after} after it" if before != after else None


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
