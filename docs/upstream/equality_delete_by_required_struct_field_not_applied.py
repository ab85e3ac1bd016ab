"""An equality delete by a required field of an optional struct is not applied to rows without the struct

Versions: Iceberg 1.12.0, Spark 4.1.4, format version 2.

Expected: an equality delete by `s.k` with the value NULL deletes the rows where `s` is NULL.

Spec: "A data row is deleted if its values are equal to all delete columns for any row in an equality delete file that
applies to the row's data file" (Table Spec, Equality Delete Files); "if a parent struct column is null it implies the
leaf column is null" (same section)

Actual: DeleteFileIndex takes a required field for one without NULL values, although its struct is optional. It compares the
bounds of the other values, finds no overlap and leaves the delete file out of the scan. The row is visible.
"""

import os
import tempfile

from pyspark.sql import SparkSession

PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


def load(name="local.db.t"):
    return spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)


def reproduce():
    columns = "(id int, s struct<k: int NOT NULL>)"
    for name in ("t", "deletes"):
        spark.sql(
            f"CREATE TABLE local.db.{name} {columns} USING iceberg TBLPROPERTIES ('format-version' = '2')"
        )
    rows = "SELECT /*+ COALESCE(1) */ * FROM VALUES (1, NULL), (2, named_struct('k', {k}))"
    spark.sql("INSERT INTO local.db.t " + rows.format(k=1))
    spark.sql("INSERT INTO local.db.deletes " + rows.format(k=9))  # a data file with the same field ids
    file = load("local.db.deletes").newScan().includeColumnStats().planFiles().iterator().next().file()
    ids = spark.sparkContext._gateway.new_array(spark._jvm.int, 1)
    ids[0] = load().schema().findField("s.k").fieldId()
    iceberg = spark._jvm.org.apache.iceberg
    counts, nulls, lower, upper = (
        file.valueCounts(),
        file.nullValueCounts(),
        file.lowerBounds(),
        file.upperBounds(),
    )
    delete = iceberg.FileMetadata.deleteFileBuilder(load().spec()).ofEqualityDeletes(ids)
    delete = (
        delete.withPath(file.location()).withFormat(file.format()).withFileSizeInBytes(file.fileSizeInBytes())
    )
    delete = delete.withMetrics(iceberg.Metrics(2, None, counts, nulls, None, lower, upper)).build()
    load().newRowDelta().addDeletes(delete).commit()
    rows = sorted(row.id for row in spark.table("local.db.t").collect())
    return f"row 1 has s.k = NULL, was deleted and is visible: {rows} instead of [2]" if rows != [2] else None


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
