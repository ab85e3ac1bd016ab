"""A Spark Connect server of this machine, from PySpark's own jars, on a lake with a SQLite catalog."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iceberg_maint.engines.spark.session.jars import (
    environment_fetch,
    load_lock,
    pyspark_jars_dir,
    resolve_jars,
)
from iceberg_maint.engines.spark.session.java import find_java
from iceberg_maint_tests.nightly.suites import PROJECT
from iceberg_maint_tests.support.servers.programs import free_port

_START_SECONDS = 180
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextmanager
def spark_connect(folder: Path, catalog_file: Path, warehouse: str) -> Iterator[str]:
    """A server on a loopback port, with the catalog `lake`. Gives its address."""
    cache, port = PROJECT / ".cache", free_port()
    java = find_java(os.environ, shim_dir=cache / "java")
    jars = resolve_jars(load_lock().jars, cache / "jars", environment_fetch(java, os.environ))
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "jdbc",
        "spark.sql.catalog.lake.uri": f"jdbc:sqlite:{catalog_file}",
        "spark.sql.catalog.lake.jdbc.schema-version": "V1",
        "spark.sql.catalog.lake.warehouse": warehouse,
        "spark.sql.catalog.lake.cache-enabled": "false",
    }
    home = pyspark_jars_dir().parent
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]", "--class", _SERVER]
    command += ["--jars", ",".join(map(str, jars))]
    command += [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    folder.mkdir(parents=True)
    environ = os.environ | {"JAVA_HOME": str(java.executable.parent.parent), "SPARK_HOME": str(home)}
    with (folder / "connect.log").open("wb") as log:
        server = subprocess.Popen(
            [*command, "spark-internal"], cwd=folder, env=environ, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        end = time.monotonic() + _START_SECONDS
        while "Spark Connect server started" not in (
            text := (folder / "connect.log").read_text("utf-8", "replace")
        ):
            if server.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"Spark Connect does not start: {text[-2000:]}")
            time.sleep(0.5)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)
