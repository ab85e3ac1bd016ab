"""Tables that DuckDB's own Iceberg writer makes through a REST catalog: rows inserted, updated and deleted.

    python -m iceberg_maint_tests.qualification.readers.duckdb_writer PORT

runs in a process of its own, with the extension `httpfs` on PYTHONPATH.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from threading import Thread
from urllib.parse import quote

from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint_tests.qualification.chaos.rest_catalog import Server
from iceberg_maint_tests.support.spark.rest import RestCatalog

NAMESPACE = "duckdb"
_CREATED = {
    "by_duckdb": "(id bigint, v varchar)",
    "by_duckdb_partitioned": "(id bigint, v varchar) PARTITIONED BY (v)",
    "by_duckdb_v3": "(id bigint, v varchar) WITH ('format-version' = '3')",
}
_ROWS = 6


class OneTableCommits(RestCatalog):
    """Takes the changes of a transaction one table after the other: DuckDB commits by the endpoint of transactions."""

    def answer(self, method: str, target: str, body: str) -> tuple[int, str]:
        if target != "/v1/transactions/commit":
            return super().answer(method, target, body)
        for change in json.loads(body)["table-changes"]:
            (namespace,), name = change["identifier"]["namespace"], change["identifier"]["name"]
            table = f"/v1/namespaces/{quote(namespace)}/tables/{quote(name)}"
            code, text = super().answer(method, table, json.dumps(change))
            if code != 200:
                return code, text
        return 200, "{}"


def write(bridge: Bridge, root: Path, apart: Path) -> None:
    """Lets DuckDB write its tables into the session's catalog `lake` in this folder."""
    bridge.spark.sql(f"create namespace if not exists lake.{NAMESPACE}")
    server = Server(0, OneTableCommits(bridge, root))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        subprocess.run(
            [sys.executable, "-m", __name__, str(server.server_port)],
            env={**os.environ, "PYTHONPATH": str(apart.absolute())},
            check=True,
        )
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main(port: str) -> None:
    """Creates the tables, and inserts, updates and deletes rows, one commit each."""
    import duckdb

    from iceberg_maint.demo.duckdb_reader import _extension_file

    database = duckdb.connect(
        config={"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    )
    for extension in ("avro", "httpfs", "iceberg"):
        database.load_extension(_extension_file(extension))
    database.execute(
        f"ATTACH 'lake' AS ice (TYPE iceberg, ENDPOINT 'http://127.0.0.1:{port}', AUTHORIZATION_TYPE 'none')"
    )
    for name, columns in _CREATED.items():
        table = f"ice.{NAMESPACE}.{name}"
        database.execute(f"CREATE TABLE {table} {columns}")
        for n in range(_ROWS):
            database.execute(f"INSERT INTO {table} VALUES ({n}, 'a'), ({n + _ROWS}, NULL)")
        if "partitioned" not in name:
            database.execute(f"UPDATE {table} SET v = 'b' WHERE id = 1")
            database.execute(f"DELETE FROM {table} WHERE id = 3")


if __name__ == "__main__":
    main(sys.argv[1])
