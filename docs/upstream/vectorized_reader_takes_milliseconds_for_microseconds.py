"""The vectorized Parquet reader takes timestamps in milliseconds of a dictionary for microseconds

Versions: Iceberg 1.12.0, Spark 4.1.4. Files that another writer made, imported by add_files.

Expected: a value of TIMESTAMP(MILLIS) is the time that the file holds, in a page with a dictionary or without.

Spec: "TIMESTAMP_MILLIS is the deprecated ConvertedType counterpart of a TIMESTAMP logical type that is UTC normalized and
has MILLIS precision" (Parquet, LogicalTypes.md)

Actual: the vectorized reader multiplies the values of plain pages by 1000, and those of a dictionary not: 2020 is read as
1970. The reader of rows reads both rightly. A rewrite stores what was read.
"""

import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


def reproduce(folder):
    times = pa.array([1_577_934_245_006] * 2, pa.timestamp("ms", "UTC"))  # 2020-01-02T03:04:05.006Z
    folder.mkdir()
    pq.write_table(pa.table({"t": times}), folder / "a.parquet", use_dictionary=True)
    spark.sql("CREATE TABLE local.db.t (t timestamp) USING iceberg")
    spark.sql(f"CALL local.system.add_files(table => 'db.t', source_table => '`parquet`.`{folder}`')")
    found = {}
    for vectorized in ("true", "false"):
        frame = spark.read.option("vectorization-enabled", vectorized).table("local.db.t")
        found[vectorized] = frame.selectExpr("unix_millis(t)").first()[0]
    if set(found.values()) == {1_577_934_245_006}:
        return None
    return f"milliseconds since 1970: {found['true']} with vectorization, {found['false']} without"


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
    fault = reproduce(Path(warehouse) / "files")
    spark.stop()
print(f"FAULT: {fault}" if fault else "fixed")
raise SystemExit(1 if fault else 0)
