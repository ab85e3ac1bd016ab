"""rewrite_manifests assigns new row ids to the rows of a v3 table

Versions: fixed in Iceberg 1.12.0; 1.11.0 has the fault. Near to apache/iceberg#16304.

Expected: rows keep their ids.

Spec: "When writing an existing data file into a new manifest, its `first_row_id` must be written into the manifest" (Table
Spec, Appendix E, Version 3)

Actual: in 1.11 the new manifest has no `first_row_id` for existing files, and they inherit other ones.
"""

import os
import tempfile

from pyspark.sql import SparkSession

PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


def reproduce():
    spark.sql("CREATE TABLE local.db.t (id int) USING iceberg TBLPROPERTIES ('format-version' = '3')")
    for value in (1, 2, 3):
        spark.sql(f"INSERT INTO local.db.t VALUES ({value})")
    query = "SELECT id, _row_id FROM local.db.t ORDER BY id"
    before = spark.sql(query).collect()
    spark.sql("CALL local.system.rewrite_manifests('db.t')")
    after = spark.sql(query).collect()
    return f"row ids are {before} before and {after} after the rewrite" if before != after else None


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
