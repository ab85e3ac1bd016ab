"""ContentFileParser cannot read the JSON that it writes for a partition value NaN or Infinity

Versions: Iceberg 1.12.0, Spark 4.1.4. ContentFileParser and SingleValueParser; REST scan planning and FileScanTaskParser use them.

Expected: the parser reads what it has written.

Spec: "JSON number" (Table Spec, Appendix D, JSON single-value serialization, for float and double; NaN is a valid partition
value: "Floating point partition values are considered equal if [...] with NaNs normalized", Scan Planning)

Actual: the value is written as the JSON string "NaN", which the parser refuses to read.
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
    spark.sql("CREATE TABLE local.db.t (id int, d double) USING iceberg PARTITIONED BY (d)")
    spark.sql("INSERT INTO local.db.t VALUES (1, double('NaN'))")
    iceberg = spark._jvm.org.apache.iceberg
    file = load().newScan().planFiles().iterator().next().file()
    text = iceberg.ContentFileParser.toJson(file, load().spec())
    print(text)
    node = spark._jvm.org.apache.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper().readTree(text)
    try:
        iceberg.ContentFileParser.fromJson(node, load().specs())
    except (Py4JJavaError, PySparkException) as error:
        return f"the parser refuses its own text: {message(error)}"
    return None


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
