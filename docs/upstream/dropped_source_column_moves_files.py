"""A dropped source column of an old partition spec moves its files to the NULL partition, and deleted rows come back

Versions: Iceberg 1.12.0, Spark 4.1.4, format version 2. Near to apache/iceberg#10234 and #14289, which describe errors.

Expected: a partition field is dropped from the spec, then its source column from the schema. Files of the old spec keep
their partition, and the position deletes of that partition apply to them.

Spec: "The data file's partition (both spec and partition values) is equal to the delete file's partition" (Table Spec, Scan
Planning, when a position delete file must be applied); "Schema evolution supports safe column add, drop, reorder and
rename" (Table Spec, Overview)

Actual: PartitionSpec.partitionType has the type `unknown` for such a field. A commit that merges data manifests of the old
spec writes NULL for its value. The delete file stays in partition a, its data files are in NULL, and the rows are back.
With `write.delete.granularity` `file` the table is unreadable: Mismatched partition tuples.
"""

import os
import tempfile

from pyspark.sql import SparkSession

PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


def reproduce():
    spark.sql(
        "CREATE TABLE local.db.t (id int, cat string) USING iceberg PARTITIONED BY (cat) TBLPROPERTIES "
        "('write.delete.mode' = 'merge-on-read', 'write.delete.granularity' = 'partition')"
    )
    for rows in ("(1, 'a'), (2, 'a')", "(3, 'a'), (4, 'a')"):
        spark.sql(f"INSERT INTO local.db.t SELECT /*+ COALESCE(1) */ * FROM VALUES {rows}")
    spark.sql("DELETE FROM local.db.t WHERE id IN (1, 3)")
    spark.sql("ALTER TABLE local.db.t DROP PARTITION FIELD cat")
    spark.sql("ALTER TABLE local.db.t DROP COLUMN cat")
    before = sorted(row.id for row in spark.table("local.db.t").collect())
    spark.sql("INSERT INTO local.db.t VALUES (5)")
    spark.sql("INSERT INTO local.db.t VALUES (6)")
    rows = sorted(row.id for row in spark.table("local.db.t").collect())
    return f"rows are {before}, and {rows} after 5 and 6 were inserted" if rows != [2, 4, 5, 6] else None


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
