"""commit() called again on a committed RewriteFiles makes the table unreadable

Versions: Iceberg 1.12.0, Spark 4.1.4, format version 2. Near to apache/iceberg#9227.

Expected: the second call, as of a client that retries after a lost answer, is refused and changes nothing.

Spec: "A snapshot represents the state of a table at some time and is used to access the complete set of data files in the
table" (Table Spec, Overview)

Actual: another writer has committed in between. The second call fails as its source files are gone, and its clean-up
deletes the manifest that the first call committed.
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
    for name in ("t", "u"):
        spark.sql(
            f"CREATE TABLE local.db.{name} (id int) USING iceberg TBLPROPERTIES ('format-version' = '2')"
        )
        spark.sql(f"INSERT INTO local.db.{name} SELECT /*+ COALESCE(1) */ * FROM VALUES (1), (2)")
    old, new = (
        load(name).newScan().planFiles().iterator().next().file() for name in ("local.db.t", "local.db.u")
    )
    rewrite = load().newRewrite().deleteFile(old).addFile(new)
    rewrite.commit()
    spark.sql("INSERT INTO local.db.t VALUES (3)")
    try:
        rewrite.commit()
    except (Py4JJavaError, PySparkException) as error:
        print("The second commit:", message(error))
    try:
        rows = sorted(row.id for row in spark.table("local.db.t").collect())
    except (Py4JJavaError, PySparkException) as error:
        return f"the table is unreadable: {message(error)}"
    return f"rows are {rows} instead of [1, 2, 3]" if rows != [1, 2, 3] else None


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
