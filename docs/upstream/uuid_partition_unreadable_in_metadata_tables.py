"""Spark cannot read the metadata tables of a table that is partitioned by a UUID

Versions: Iceberg 1.12.0, Spark 4.1.4.

Expected: `SELECT * FROM t.partitions` and `t.files` show the partition.

Spec: "Any primitive except for geometry and geography" (Table Spec, Partition Transforms, source types of identity)

Actual: the query fails, as the value is a java.util.UUID where a string is expected.
"""

import os
import tempfile

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


def load(name="local.db.t"):
    return spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)


def message(error):
    lines = [line for line in str(error).splitlines() if "An error occurred" not in line]
    return next((line for line in lines if line.startswith("Caused by")), lines[0])[:200]


def reproduce():
    spark.sql("CREATE TABLE local.db.t (id int) USING iceberg")
    load().updateSchema().addColumn("u", spark._jvm.org.apache.iceberg.types.Types.UUIDType.get()).commit()
    load().updateSpec().addField("u").commit()
    spark.sql("INSERT INTO local.db.t VALUES (1, 'f79c3e09-677c-4bbd-a479-3f349cb785e7')")
    failures = {}
    for name in ("partitions", "files", "entries"):
        try:
            print(name, spark.table(f"local.db.t.{name}").collect())
        except (Py4JJavaError, PySparkException) as error:
            failures[name] = message(error)
    return f"metadata tables cannot be read: {failures}" if failures else None


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
