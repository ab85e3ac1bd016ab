"""expire_snapshots in a REST catalog removes a tag that another writer set at the same time, and its files

Versions: Iceberg 1.12.0, Spark 4.1.4; RESTCatalog as the client, CatalogHandlers as the server. iceberg-go fixed its own
in apache/iceberg-go#672.

Expected: the commit of the expiry is refused and tried again on the new metadata, which has a tag on the snapshot.

Spec: "For each branch and tag, add the referenced snapshot to the retained set" (Table Spec, Snapshot Retention Policy)

Actual: UpdateRequirements asks for the table's UUID only when snapshots are removed. The server removes the snapshot, and
TableMetadata drops every ref to it. The client deletes the snapshot's files.
"""

import os
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pyspark.sql import SparkSession

PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


class Server(BaseHTTPRequestHandler):
    """The REST API by Iceberg's handlers. Another writer tags snapshot `first` just before the expiry arrives."""

    def do_GET(self):
        mode = getattr(spark._jvm.org.apache.iceberg.rest, "RESTCatalogProperties$SnapshotMode").ALL
        is_config = self.path.startswith("/v1/config")
        self.reply(None if is_config else self.handlers().loadTable(self.backend, self.table, mode))

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if "remove-snapshots" in body:
            self.backend.loadTable(self.table).manageSnapshots().createTag("audit", self.first).commit()
        request = spark._jvm.org.apache.iceberg.rest.requests.UpdateTableRequestParser.fromJson(body)
        self.reply(self.handlers().updateTable(self.backend, self.table, request))

    def handlers(self):
        return spark._jvm.org.apache.iceberg.rest.CatalogHandlers

    def reply(self, response):
        parser = spark._jvm.org.apache.iceberg.rest.responses.LoadTableResponseParser
        text = parser.toJson(response) if response else '{"defaults": {}, "overrides": {}}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())


def reproduce():
    iceberg, conf = spark._jvm.org.apache.iceberg, spark.sparkContext._jsc.hadoopConfiguration()
    spark.sql("CREATE TABLE local.db.t (id int) USING iceberg")
    spark.sql("INSERT INTO local.db.t VALUES (1)")
    spark.sql("INSERT OVERWRITE local.db.t VALUES (2)")
    Server.backend = iceberg.hadoop.HadoopCatalog(conf, warehouse)
    Server.table = iceberg.catalog.TableIdentifier.parse("db.t")
    Server.first = spark.sql("SELECT snapshot_id FROM local.db.t.snapshots ORDER BY committed_at").first()[0]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = iceberg.rest.RESTCatalog()
    client.setConf(conf)
    address = f"http://127.0.0.1:{server.server_port}"
    client.initialize("rest", {"uri": address, "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO"})
    client.loadTable(Server.table).expireSnapshots().expireSnapshotId(Server.first).commit()
    server.shutdown()
    refs = sorted(row.name for row in spark.table("local.db.t.refs").collect())
    return (
        f"the tag 'audit' was committed before the expiry and is gone: refs are {refs}"
        if "audit" not in refs
        else None
    )


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
