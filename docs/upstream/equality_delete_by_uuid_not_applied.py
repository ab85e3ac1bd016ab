"""An equality delete by UUID is not applied to files with UUIDs on both sides of the sign bit

Versions: Iceberg 1.12.0, Spark 4.1.4, format version 2. Known as apache/iceberg#14216 (for filters).

Expected: a row whose UUID an equality delete names is deleted.

Spec: "A data row is deleted if its values are equal to all delete columns for any row in an equality delete file that
applies to the row's data file" (Table Spec, Equality Delete Files)

Actual: Parquet orders UUIDs by unsigned bytes, and so are the bounds in metadata. DeleteFileIndex compares bounds as
java.util.UUID does, by signed numbers. The lower bound seems to be above the upper one, no range overlaps, and the
scan leaves the delete file out. The row is visible.
"""

import os
import tempfile

from pyspark.sql import SparkSession

PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


def load(name="local.db.t"):
    return spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)


def reproduce():
    low, high = "00000000-0000-0000-0000-000000000001", "f79c3e09-677c-4bbd-a479-3f349cb785e7"
    iceberg, gateway = spark._jvm.org.apache.iceberg, spark.sparkContext._gateway
    for name in ("local.db.t", "local.db.deletes"):
        spark.sql(f"CREATE TABLE {name} (id int) USING iceberg TBLPROPERTIES ('format-version' = '2')")
        load(name).updateSchema().addColumn("u", iceberg.types.Types.UUIDType.get()).commit()
    spark.sql(f"INSERT INTO local.db.t SELECT /*+ COALESCE(1) */ * FROM VALUES (1, '{low}'), (2, '{high}')")
    # A data file of a table with the same field ids serves as the delete file.
    spark.sql(f"INSERT INTO local.db.deletes VALUES (1, '{low}')")
    file = load("local.db.deletes").newScan().includeColumnStats().planFiles().iterator().next().file()
    ids = gateway.new_array(spark._jvm.int, 1)
    ids[0] = 2
    metrics = iceberg.Metrics(
        1, None, file.valueCounts(), file.nullValueCounts(), None, file.lowerBounds(), file.upperBounds()
    )
    delete = iceberg.FileMetadata.deleteFileBuilder(load().spec()).ofEqualityDeletes(ids)
    delete = delete.withPath(file.location()).withFormat(file.format()).withMetrics(metrics)
    delete = delete.withFileSizeInBytes(file.fileSizeInBytes()).build()
    load().newRowDelta().addDeletes(delete).commit()
    rows = sorted(row.id for row in spark.table("local.db.t").collect())
    return f"row 1 was deleted by its UUID and is visible: {rows} instead of [2]" if rows != [2] else None


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
