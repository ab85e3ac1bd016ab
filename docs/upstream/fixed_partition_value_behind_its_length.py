"""A fixed partition value is written to manifests behind its length, which a fixed of Avro does not have

Versions: Iceberg 1.12.0, Spark 4.1.4.

Expected: Avro's reader reads the manifest: one record in the file, and the partition value that was inserted.

Spec: "fixed instances are encoded using the number of bytes declared in the schema" (Avro Specification, Binary Encoding)

Actual: ValueWriters.FixedByteBufferWriter calls writeBytes. A reader that follows the specification is out of step from the
partition on: Avro's own reader fails, or sees another value and another number of records.
"""

import os
import tempfile
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


def load(name="local.db.t"):
    return spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)


def reproduce():
    spark.sql("CREATE TABLE local.db.t (id int) USING iceberg")
    load().updateSchema().addColumn(
        "f", spark._jvm.org.apache.iceberg.types.Types.FixedType.ofLength(4)
    ).commit()
    load().updateSpec().addField("f").commit()
    spark.sql("INSERT INTO local.db.t VALUES (1, X'61626364')")
    (manifest,) = Path(warehouse).rglob("*-m0.avro")
    avro = spark._jvm.org.apache.avro
    file = spark._jvm.java.io.File(str(manifest))
    reader = avro.file.DataFileReader(file, avro.generic.GenericDatumReader())
    try:
        data_file = reader.next().get("data_file")
    except PySparkException as error:
        return f"Avro's reader fails: {error}"
    partition, records = str(data_file.get("partition")), data_file.get("record_count")
    print("partition", partition, "record_count", records)
    return None if records == 1 else f"partition {partition} has {records} records, and one was inserted"


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
