"""A Flink job: Flink's SQL client with a script and a mini cluster in the same process."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from iceberg_maint.config import Config
from iceberg_maint.config.catalogs import CatalogConfig
from iceberg_maint.engines.spark.session.jars import (
    environment_fetch,
    load_lock,
    parse_jars,
    pyspark_jars_dir,
    resolve_jars,
)
from iceberg_maint.engines.spark.session.java import find_java
from iceberg_maint.engines.spark.session.settings import catalog_conf
from iceberg_maint.errors import ConfigurationError

CHECKPOINT_SECONDS = 2
_HEAP = "768m"
_STOP_SECONDS = 30

# The packages that Flink's own configuration opens for Java 17 and later. Without them Flink cannot serialize
# checkpoints.
_OPENED = (
    *("java.lang", "java.net", "java.io", "java.nio", "java.lang.reflect", "java.text", "java.time"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks"),
    "sun.nio.ch",
)

# A failed job does not restart, so that the demo shows the failure. All services listen on loopback only.
_CONFIG = f"""\
execution.checkpointing.interval: {CHECKPOINT_SECONDS}s
restart-strategy.type: none
parallelism.default: 1
taskmanager.memory.managed.size: 64m
jobmanager.bind-host: 127.0.0.1
jobmanager.rpc.address: 127.0.0.1
taskmanager.bind-host: 127.0.0.1
taskmanager.host: 127.0.0.1
rest.address: 127.0.0.1
rest.bind-address: 127.0.0.1
sql-gateway.endpoint.rest.address: 127.0.0.1
sql-gateway.endpoint.rest.bind-address: 127.0.0.1
"""
_LOGGING = """\
rootLogger.level = WARN
rootLogger.appenderRef.file.ref = file
appender.file.name = file
appender.file.type = File
appender.file.fileName = ${sys:log.file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %-5p %c{1} - %m%n
"""


@dataclass(frozen=True, slots=True)
class FlinkHome:
    """The Java executable, and a class path with Flink, Iceberg's runtime for Flink and the JDBC driver of
    the catalog."""

    java: Path
    class_path: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class FlinkJob:
    """A started job, and the folder with its script and its output."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def running(self) -> bool:
        """Whether the process of the job still runs."""
        return self.process.poll() is None

    @property
    def succeeded(self) -> bool:
        """Whether the job has ended without an error. If so, its checkpoints have committed every row."""
        return self.process.poll() == 0 and "[ERROR]" not in self.said()

    def said(self) -> str:
        """The output of the SQL client."""
        return (self.folder / "said.log").read_text(encoding="utf-8", errors="replace")


def flink_home(config: Config, folder: Path) -> FlinkHome:
    """Returns the Flink that `make demo DEMO=flink` installed in `folder`. Downloads the other jars from Maven and
    compares their checksums.

    Raises ConfigurationError ICM-100 if `folder` has no Flink, RefusedError ICM-103 if there is no Java or if
    a jar fails its checksum.
    """
    # The path is absolute, because the job has another working directory.
    flink = folder.absolute() / "pyflink"
    if not flink.is_dir():
        raise ConfigurationError("ICM-100", f"{folder} has no Flink.", "run 'make demo DEMO=flink'.")
    java = find_java(os.environ, shim_dir=config.cache / "java")
    fetch = environment_fetch(java, os.environ)
    lock = json.loads(resources.files("bench.flink").joinpath("jars.lock.json").read_text("utf-8"))
    fetched = resolve_jars(parse_jars(lock), config.cache / "jars", fetch)
    drivers = [
        jar for jar in resolve_jars(load_lock().jars, config.cache / "jars", fetch) if "spark" not in jar.name
    ]
    # Iceberg reads files with Hadoop, which PySpark contains and Flink does not.
    hadoop = sorted(pyspark_jars_dir().glob("hadoop-client-*.jar"))
    flink_jars = [*sorted(flink.glob("lib/*.jar")), *sorted(flink.glob("opt/*.jar"))]
    return FlinkHome(java.executable, (*flink_jars, *fetched, *drivers, *hadoop))


def flink_catalog(catalog: CatalogConfig) -> Mapping[str, str]:
    """Returns the properties of Flink's catalog for a catalog of type jdbc. The property `name` is the
    catalog's name.

    Iceberg's Flink catalog has no `type` for JDBC, so `catalog-impl` names the class. Flink's catalog must
    have the same name as ours, because Iceberg stores the tables of a JDBC catalog under the catalog's name.
    """
    prefix = f"spark.sql.catalog.{catalog.name}."
    conf = catalog_conf(catalog.name, catalog.type, catalog.uri, catalog.warehouse, catalog.properties)
    options = {k.removeprefix(prefix): v for k, v in conf.items() if k.startswith(prefix)}
    del options["type"]
    return {
        "name": catalog.name,
        "type": "iceberg",
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        **options,
    }


@contextmanager
def started(home: FlinkHome, folder: Path, script: str, more: str = "") -> Iterator[FlinkJob]:
    """Runs the script in another process, and stops that process at the end. `more` are lines of Flink's configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "script.sql").write_text(script, encoding="utf-8")
    (folder / "config.yaml").write_text(_CONFIG + more, encoding="utf-8")
    (folder / "log4j2.properties").write_text(_LOGGING, encoding="utf-8")
    command = [
        str(home.java),
        f"-Xmx{_HEAP}",
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
        f"-Dlog.file={folder / 'flink.log'}",
        f"-Dlog4j2.configurationFile={(folder / 'log4j2.properties').as_uri()}",
        *("-cp", os.pathsep.join(map(str, home.class_path))),
        *("org.apache.flink.table.client.SqlClient", "-f", str(folder / "script.sql")),
    ]
    environ = {**os.environ, "FLINK_CONF_DIR": str(folder)}
    with (folder / "said.log").open("wb") as said:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, cwd=folder, env=environ
        )
    try:
        yield FlinkJob(process, folder)
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
