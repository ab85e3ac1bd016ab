"""RewriteFiles accepts a data sequence number above the table's, and later deletes are without effect

Versions: Iceberg 1.12.0, Spark 4.1.4, format version 2.

Expected: `RewriteFiles.dataSequenceNumber` refuses a number that the table has not assigned.

Spec: "The table's highest assigned sequence number, a monotonically increasing long that tracks the order of snapshots in a
table" (Table Spec, Table Metadata Fields, last-sequence-number)

Actual: the commit succeeds. Equality deletes do not apply to the file until the table has assigned that many numbers.
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
    for name in ("t", "u"):
        spark.sql(
            f"CREATE TABLE local.db.{name} (id int) USING iceberg TBLPROPERTIES ('format-version' = '2')"
        )
        spark.sql(f"INSERT INTO local.db.{name} SELECT /*+ COALESCE(1) */ * FROM VALUES (1), (2)")
    old, new = (
        load(name).newScan().planFiles().iterator().next().file() for name in ("local.db.t", "local.db.u")
    )
    rewrite = load().newRewrite().dataSequenceNumber(old.dataSequenceNumber() + 100)
    rewrite.deleteFile(old).addFile(new).commit()
    last = load().operations().current().lastSequenceNumber()
    number = load().newScan().planFiles().iterator().next().file().dataSequenceNumber()
    load().newRowDelta().addDeletes(equality_delete(2)).commit()
    rows = sorted(row.id for row in spark.table("local.db.t").collect())
    if rows == [1]:
        return None
    return f"a file has number {number}, the table {last}; row 2 was deleted after it and is visible: {rows}"


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
