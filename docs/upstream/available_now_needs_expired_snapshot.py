"""A stream with the trigger AvailableNow needs the snapshot with which it once began

Versions: Iceberg 1.12.0, Spark 4.1.4. apache/iceberg#18000 reports it for 1.11.0.

Expected: a query goes on from its checkpoint as long as the snapshot of its newest offset is retained.

Spec: "Trigger.AvailableNow(): The query will process all available data in multiple batches and then stop" (Spark,
Structured Streaming Programming Guide, Triggers)

Actual: `prepareForTriggerAvailableNow` looks for the end from the initial offset, whose snapshot has expired, and fails.
"""

import os
import tempfile

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


def read(folder):
    """Reads what is there. Returns None, or what the query says when it fails."""
    stream = spark.readStream.format("iceberg").load("local.db.t")
    writer = stream.writeStream.format("noop").option("checkpointLocation", f"{folder}/checkpoint")
    try:
        writer.trigger(availableNow=True).start().awaitTermination()
    except StreamingQueryException as failure:
        return str(failure).splitlines()[0]
    return None


def reproduce(folder):
    spark.sql("CREATE TABLE local.db.t (id int) USING iceberg")
    for i in range(3):
        spark.sql(f"INSERT INTO local.db.t VALUES ({i})")
        assert read(folder) is None
    spark.sql(
        "CALL local.system.expire_snapshots(table => 'db.t', older_than => TIMESTAMP '9999-01-01', retain_last => 1)"
    )
    # The one snapshot that is left is that of the newest offset.
    said = read(folder)
    return said if said and "expired" in said else None


jars = os.environ.get("ICEBERG_JARS")  # without it Spark fetches PACKAGE
settings = {
    "spark.jars" if jars else "spark.jars.packages": jars or PACKAGE,
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.local": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.local.type": "hadoop",
    "spark.sql.catalog.local.cache-enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "OFF",
}
with tempfile.TemporaryDirectory() as warehouse:
    settings["spark.sql.catalog.local.warehouse"] = warehouse
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    print("Iceberg", spark._jvm.org.apache.iceberg.IcebergBuild.version(), "Spark", spark.version)
    fault = reproduce(warehouse)
    spark.stop()
print(f"FAULT: {fault}" if fault else "fixed")
raise SystemExit(1 if fault else 0)
