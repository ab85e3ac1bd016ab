"""removeDanglingDeleteFiles drops an equality delete of an unpartitioned spec that applies to files of another spec

Versions: fixed in Iceberg 1.12.0 (apache/iceberg#15727); 1.10.2 and 1.11.0 have the fault.

Expected: an equality delete of the unpartitioned spec 0 stays as long as an older data file of spec 1 is live.

Spec: "Equality delete files stored with an unpartitioned spec are applied as global deletes" (Table Spec, Scan Planning)

Actual: up to 1.11 the action compares a delete file with the data files of its own spec and partition. There are none, the
delete goes, and its rows come back. `remove-dangling-deletes` of rewrite_data_files does the same.
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
    spark.sql(
        "CREATE TABLE local.db.t (id int, cat string) USING iceberg TBLPROPERTIES ('format-version' = '2')"
    )
    spark.sql("ALTER TABLE local.db.t ADD PARTITION FIELD cat")
    spark.sql("INSERT INTO local.db.t VALUES (1, 'a'), (2, 'a')")
    load().newRowDelta().addDeletes(equality_delete(2)).commit()
    spark._jvm.org.apache.iceberg.spark.actions.SparkActions.get().removeDanglingDeleteFiles(load()).execute()
    rows = sorted(row.id for row in spark.table("local.db.t").collect())
    return f"row 2 was deleted and is back: {rows} instead of [1]" if rows != [1] else None


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
