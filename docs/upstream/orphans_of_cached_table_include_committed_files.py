"""remove_orphan_files deletes committed files if the catalog's cache holds an older version of the table

Versions: Iceberg 1.12.0, Spark 4.1.4. Near to apache/iceberg#14440 and #16324.

Expected: `remove_orphan_files` loads the current metadata before it decides which files no snapshot reaches.

Spec: "A file is considered orphan if it is not reachable by any valid snapshot" (javadoc of DeleteOrphanFiles)

Actual: a session with `cache-enabled=true`, which is the default, has the table of before another engine's commit. An entry
of the cache that is used again within 30 seconds never expires. The files of the commit are deleted once they are older
than three days (here their time is set back).
"""

import os
import tempfile
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


def reproduce():
    spark.sql("CREATE TABLE local.db.t (id int) USING iceberg")
    spark.sql("INSERT INTO local.db.t VALUES (1)")
    spark.table("local.db.t").collect()
    # Another engine, which has no part in the session's cache.
    tables = spark._jvm.org.apache.iceberg.hadoop.HadoopTables(spark.sparkContext._jsc.hadoopConfiguration())
    other = tables.load(f"{warehouse}/db/t")
    file = other.newScan().planFiles().iterator().next().file()
    other.newOverwrite().deleteFile(file).commit()
    for path in Path(warehouse).rglob("*"):
        os.utime(path, (0, 0))
    removed = spark.sql("CALL local.system.remove_orphan_files(table => 'db.t')").collect()
    names = [Path(row[0]).name for row in removed]
    try:
        tables.load(f"{warehouse}/db/t").newScan().planFiles().iterator().hasNext()
    except Py4JJavaError as error:
        return f"{names} are deleted and the table is unreadable: {error.java_exception.getMessage()}"
    return f"the committed files {names} are deleted" if names else None


jars = os.environ.get("ICEBERG_JARS")  # without it Spark fetches PACKAGE
settings = {
    "spark.jars" if jars else "spark.jars.packages": jars or PACKAGE,
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.local": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.local.type": "hadoop",
    "spark.sql.catalog.local.cache-enabled": "true",
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
