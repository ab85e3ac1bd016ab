"""commit() called again on a committed append removes another writer's commit from the table

Versions: Iceberg 1.12.0, Spark 4.1.4, format version 2. Near to apache/iceberg#9227.

Expected: the second call, as of a client that retries after a lost answer, is refused or changes nothing. A commit that
another writer has made stays.

Spec: "Append operations have no requirements and can always be applied" (Table Spec, Commit Conflict Resolution and Retry);
"append -- Only data files were added and no files were removed" (Table Spec, Snapshots)

Actual: the second call sets the first call's snapshot as the current one. The rows of the commit in between are gone.
"""

import os
import tempfile

from pyspark.sql import SparkSession

PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


def load(name="local.db.t"):
    return spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)


def reproduce():
    for name in ("t", "u"):
        spark.sql(
            f"CREATE TABLE local.db.{name} (id int) USING iceberg TBLPROPERTIES ('format-version' = '2')"
        )
        spark.sql(f"INSERT INTO local.db.{name} VALUES ({1 if name == 't' else 2})")
    file = load("local.db.u").newScan().planFiles().iterator().next().file()
    append = load().newAppend().appendFile(file)
    append.commit()
    spark.sql("INSERT INTO local.db.t VALUES (3)")
    append.commit()
    rows = sorted(row.id for row in spark.table("local.db.t").collect())
    return f"row 3 of another writer is gone: {rows} instead of [1, 2, 3]" if 3 not in rows else None


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
