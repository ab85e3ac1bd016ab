"""A filter `content <> 1` on the entries table hides all delete files

Versions: fixed on Iceberg 1.12.0, Spark 4.1.4. apache/iceberg#17440 reports it for 1.11.0 and older.

Expected: `SELECT * FROM t.entries WHERE data_file.content <> 1` shows data files and equality delete files.

Spec: "Type of content stored by the data file: data, equality deletes, or position deletes" (Table Spec, Data File
Fields)

Actual: up to 1.11 the filter is taken to exclude every delete manifest.
"""

import os
import tempfile

from pyspark.sql import SparkSession

PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


def load(name="local.db.t"):
    return spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)


def equality_delete(value):
    """An equality delete file by column id: a data file of a table with the same field ids."""
    spark.sql(f"CREATE TABLE local.db.deletes USING iceberg AS SELECT {value} AS id")
    file = load("local.db.deletes").newScan().planFiles().iterator().next().file()
    ids = spark.sparkContext._gateway.new_array(spark._jvm.int, 1)
    ids[0] = 1
    builder = spark._jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(load().specs().get(0))
    builder = builder.ofEqualityDeletes(ids).withPath(file.location()).withFormat(file.format())
    return builder.withFileSizeInBytes(file.fileSizeInBytes()).withRecordCount(1).build()


def reproduce():
    spark.sql("CREATE TABLE local.db.t (id int) USING iceberg TBLPROPERTIES ('format-version' = '2')")
    spark.sql("INSERT INTO local.db.t VALUES (1)")
    load().newRowDelta().addDeletes(equality_delete(1)).commit()
    entries = spark.table("local.db.t.entries")
    shown = sorted(
        r[0] for r in entries.where("data_file.content <> 1").select("data_file.content").collect()
    )
    return f"content of the shown files is {shown} instead of [0, 2]" if shown != [0, 2] else None


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
