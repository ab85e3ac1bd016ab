"""rewrite_data_files with a filter leaves out equality deletes that the filter excludes, and deleted rows come back

Versions: fixed in Iceberg 1.9.0 (apache/iceberg#12479).

Expected: the filter chooses data files. All deletes apply to them, as whole files are rewritten.

Spec: "The data file's data sequence number is strictly less than the delete's data sequence number" (Table Spec, Scan
Planning, when an equality delete file must be applied)

Actual: before, a scan with `ignoreResiduals` filtered delete files by the expression as well. A delete of other values than
the filter's was not applied to the rows that the residual no longer removed.
"""

import os
import tempfile

from pyspark.sql import SparkSession

PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


def load(name="local.db.t"):
    return spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)


def reproduce():
    for name in ("t", "deletes"):
        spark.sql(
            f"CREATE TABLE local.db.{name} (id int) USING iceberg TBLPROPERTIES ('format-version' = '2')"
        )
    spark.sql("INSERT INTO local.db.t SELECT /*+ COALESCE(1) */ * FROM VALUES (1), (2), (3)")
    spark.sql("INSERT INTO local.db.deletes VALUES (2)")  # a data file with the same field ids
    file = load("local.db.deletes").newScan().includeColumnStats().planFiles().iterator().next().file()
    ids = spark.sparkContext._gateway.new_array(spark._jvm.int, 1)
    ids[0] = 1
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
    delete = delete.withMetrics(iceberg.Metrics(1, None, counts, nulls, None, lower, upper)).build()
    load().newRowDelta().addDeletes(delete).commit()
    options = "map('rewrite-all', 'true')"
    spark.sql(
        f"CALL local.system.rewrite_data_files(table => 'db.t', where => 'id = 3', options => {options})"
    )
    rows = sorted(row.id for row in spark.table("local.db.t").collect())
    return f"row 2 was deleted and is back: {rows} instead of [1, 3]" if rows != [1, 3] else None


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
