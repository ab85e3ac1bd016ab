"""expireSnapshots deletes a live data file that one commit removed and added again

Versions: Iceberg 1.12.0, Spark 4.1.4. Known as apache/iceberg#17304.

Expected: the file stays, as the current snapshot reaches it.

Spec: "will never remove files which are still required by a non-expired snapshot" (documentation of the procedure
expire_snapshots)

Actual: the clean-up takes the entry DELETED of an expired snapshot for the end of the file.
"""

import os
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


def load(name="local.db.t"):
    return spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)


def reproduce():
    spark.sql("CREATE TABLE local.db.t (id int) USING iceberg TBLPROPERTIES ('format-version' = '2')")
    spark.sql("INSERT INTO local.db.t VALUES (1)")
    file = load().newScan().planFiles().iterator().next().file()
    load().newRewrite().deleteFile(file).addFile(file).commit()
    spark.sql("INSERT INTO local.db.t VALUES (2)")
    spark.sql("INSERT INTO local.db.t VALUES (3)")
    load().expireSnapshots().expireOlderThan(load().currentSnapshot().timestampMillis()).retainLast(
        1
    ).commit()
    path = Path(file.location().removeprefix("file:"))
    return f"the live data file {path.name} is deleted" if not path.exists() else None


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
