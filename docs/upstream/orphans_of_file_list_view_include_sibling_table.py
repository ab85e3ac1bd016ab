"""remove_orphan_files with file_list_view deletes live files of a table whose location begins with the same text

Versions: Iceberg 1.12.0, Spark 4.1.4. Known as apache/iceberg#17448.

Expected: with a list of all files of a bucket, `remove_orphan_files` of the table at `.../db/t` looks at files below
`.../db/t/` only.

Spec: "A file is considered orphan if it is not reachable by any valid snapshot" (javadoc of DeleteOrphanFiles)

Actual: the action filters the list by `startsWith(".../db/t")`. The files of `.../db/t_2` pass, no snapshot of `t` reaches
them, and they are deleted.
"""

import os
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


def reproduce():
    for name in ("t", "t_2"):
        spark.sql(f"CREATE TABLE local.db.{name} (id int) USING iceberg")
        spark.sql(f"INSERT INTO local.db.{name} VALUES (1)")
    old = datetime.now(UTC) - timedelta(days=9)
    files = [(str(path), old) for path in Path(warehouse).rglob("*") if path.is_file()]
    spark.createDataFrame(files, "file_path string, last_modified timestamp").createOrReplaceTempView(
        "listed"
    )
    removed = spark.sql(
        "CALL local.system.remove_orphan_files(table => 'db.t', file_list_view => 'listed')"
    ).collect()
    live = [row[0] for row in removed if "/db/t_2/" in row[0]]
    try:
        rows = spark.table("local.db.t_2").collect()
    except (Py4JJavaError, PySparkException) as error:
        return f"{len(live)} files of db.t_2 are deleted, which cannot be read: {str(error).splitlines()[0][:200]}"
    return f"files of db.t_2 are deleted: {live}" if live or len(rows) != 1 else None


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
