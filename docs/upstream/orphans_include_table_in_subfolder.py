"""remove_orphan_files deletes all files of a table whose location is below the table's own

Versions: Iceberg 1.12.0, Spark 4.1.4. Known as apache/iceberg#17213.

Expected: files that belong to another table are not removed, or the action refuses a location that holds the metadata of
another table.

Spec: "A file is considered orphan if it is not reachable by any valid snapshot" (javadoc of DeleteOrphanFiles)

Actual: reachable is what the snapshots of the one table reach. The other table's data and metadata are deleted.
"""

import os
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


def reproduce():
    iceberg, conf = spark._jvm.org.apache.iceberg, spark.sparkContext._jsc.hadoopConfiguration()
    spark.sql("CREATE TABLE local.db.t (id int) USING iceberg")
    spark.sql("INSERT INTO local.db.t VALUES (1)")
    schema = spark._jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(
        spark.table("local.db.t")._jdf.schema()
    )
    iceberg.hadoop.HadoopTables(conf).create(schema, f"{warehouse}/db/t/archive")
    for path in Path(warehouse).rglob("*"):
        os.utime(path, (0, 0))
    removed = spark.sql("CALL local.system.remove_orphan_files(table => 'db.t')").collect()
    live = [Path(row[0]).name for row in removed if "/db/t/archive/" in row[0]]
    return f"files of the table at .../db/t/archive are deleted: {live}" if live else None


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
