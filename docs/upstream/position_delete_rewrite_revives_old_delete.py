"""rewrite_position_delete_files applies a position delete to a data file that was added after it

Versions: Iceberg 1.12.0, Spark 4.1.4, format version 2.

Expected: a position delete of file A is older than A, which was removed and added again. It does not apply. A rewrite of
position deletes leaves it without effect.

Spec: "A position delete file must be applied to a data file when [...] The data file's data sequence number is less than or
equal to the delete file's data sequence number" (Table Spec, Scan Planning)

Actual: the action joins by path only and gives its output the highest sequence number of its input. The delete of A is now
as new as another file's delete, applies to A, and a live row is gone.
"""

import os
import tempfile

from pyspark.sql import SparkSession

PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


def load(name="local.db.t"):
    return spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)


def reproduce():
    spark.sql(
        "CREATE TABLE local.db.t (id int) USING iceberg TBLPROPERTIES ('format-version' = '2', "
        "'write.delete.mode' = 'merge-on-read', 'write.delete.granularity' = 'partition')"
    )
    spark.sql("INSERT INTO local.db.t SELECT /*+ COALESCE(1) */ * FROM VALUES (1), (2)")
    file = load().newScan().planFiles().iterator().next().file()
    spark.sql("INSERT INTO local.db.t SELECT /*+ COALESCE(1) */ * FROM VALUES (3), (4)")
    spark.sql("DELETE FROM local.db.t WHERE id IN (2, 4)")
    load().newDelete().deleteFile(file).commit()
    load().newAppend().appendFile(file).commit()
    spark.sql("INSERT INTO local.db.t SELECT /*+ COALESCE(1) */ * FROM VALUES (5), (6)")
    spark.sql("DELETE FROM local.db.t WHERE id IN (3, 6)")
    before = sorted(row.id for row in spark.table("local.db.t").collect())
    options = "map('rewrite-all', 'true')"
    spark.sql(f"CALL local.system.rewrite_position_delete_files(table => 'db.t', options => {options})")
    rows = sorted(row.id for row in spark.table("local.db.t").collect())
    return (
        f"rows are {before} before and {rows} after the rewrite of position deletes"
        if rows != before
        else None
    )


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
