"""A Trino of this machine on the lake of a SQLite catalog and an S3 server: its archives, its start and its end."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iceberg_maint.demo.store import KEY_ID, REGION, SECRET
from iceberg_maint.engines.spark.session.jars import pyspark_jars_dir
from iceberg_maint.engines.spark.session.java import find_java
from iceberg_maint_tests.nightly.suites import PROJECT
from iceberg_maint_tests.support.servers.programs import free_port

VERSION = "476"
_ARCHIVES = {
    ("trino-server-core", "tar.gz"): "0f388f9967c177ae70a47c099082fc95387f0c3cb96d8000d1d41fc3a5223158",
    ("trino-iceberg", "zip"): "99edba5b491ed94d599aeb61e0794272d3569d8b563f3bb8569e8a49daa87b6c",
}
"""Artifact of io.trino and kind of its archive → sha256."""
_IVY = """\
<ivy-module version="2.0"><info organisation="local" module="trino"/><dependencies>
  <dependency org="io.trino" name="{name}" rev="{version}" transitive="false">
    <artifact name="{name}" type="{kind}" ext="{kind}"/>
  </dependency>
</dependencies></ivy-module>
"""
_START_SECONDS = 180


@contextmanager
def trino(folder: Path, java: Path, catalog_file: Path, warehouse: str, s3_url: str) -> Iterator[str]:
    """A coordinator on a loopback port, with the catalog `lake`. Gives its address. `java` is of version 24 or later."""
    home, port = _installed(PROJECT / ".cache"), free_port()
    etc = folder / "etc"
    (etc / "catalog").mkdir(parents=True)
    (etc / "config.properties").write_text(
        "coordinator=true\nnode-scheduler.include-coordinator=true\n"
        f"http-server.http.port={port}\ndiscovery.uri=http://127.0.0.1:{port}\ncatalog.config-dir={etc}/catalog\n",
        "utf-8",
    )
    (etc / "catalog" / "lake.properties").write_text(
        "connector.name=iceberg\niceberg.catalog.type=jdbc\n"
        "iceberg.jdbc-catalog.driver-class=org.sqlite.JDBC\n"
        f"iceberg.jdbc-catalog.connection-url=jdbc:sqlite:{catalog_file}\n"
        "iceberg.jdbc-catalog.catalog-name=lake\niceberg.jdbc-catalog.schema-version=V1\n"
        f"iceberg.jdbc-catalog.default-warehouse-dir={warehouse}\nfs.native-s3.enabled=true\n"
        f"s3.endpoint={s3_url}\ns3.path-style-access=true\ns3.region={REGION}\n"
        f"s3.aws-access-key={KEY_ID}\ns3.aws-secret-key={SECRET}\n",
        "utf-8",
    )
    options = {
        "node.environment": "test",
        "node.id": "one",
        "node.data-dir": folder / "data",
        "node.bind-ip": "127.0.0.1",
        "node.internal-address": "127.0.0.1",
        "plugin.dir": home / "plugin",
        "config": etc / "config.properties",
    }
    command = [str(java), "-Xmx1500m", "-Djdk.attach.allowAttachSelf=true"]
    command += [f"-D{key}={value}" for key, value in options.items()]
    command += ["-cp", str(home / "lib" / "*"), "io.trino.server.TrinoServer"]
    with (folder / "trino.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait(folder / "trino.log", server)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _wait(log: Path, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START_SECONDS
    while "SERVER STARTED" not in (text := log.read_text("utf-8", "replace")):
        if server.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"Trino does not start: {text[-2000:]}")
        time.sleep(0.5)


def _installed(cache: Path) -> Path:
    """The unpacked server with the plugin of Iceberg and the driver of SQLite."""
    home = cache / f"trino-{VERSION}"
    if home.is_dir():
        return home
    with tempfile.TemporaryDirectory(dir=cache, prefix=".trino-") as scratch:
        server, plugin = (_fetched(name, kind, Path(scratch)) for name, kind in _ARCHIVES)
        with tarfile.open(server) as archive:
            archive.extractall(scratch, filter="data")
        unpacked = Path(scratch) / f"trino-server-core-{VERSION}"
        with zipfile.ZipFile(plugin) as archive:
            archive.extractall(unpacked / "plugin")
        iceberg = unpacked / "plugin" / "iceberg"
        (unpacked / "plugin" / f"trino-iceberg-{VERSION}").rename(iceberg)
        (driver,) = (cache / "jars").glob("sqlite-jdbc-*.jar")
        shutil.copy(driver, iceberg)
        unpacked.rename(home)
    return home


def _fetched(name: str, kind: str, folder: Path) -> Path:
    description = folder / f"{name}.xml"
    description.write_text(_IVY.format(name=name, version=VERSION, kind=kind), "utf-8")
    java = find_java(os.environ, shim_dir=PROJECT / ".cache" / "java").executable
    command = [str(java), "-cp", str(pyspark_jars_dir() / "*"), "org.apache.ivy.Main", "-warn"]
    command += ["-cache", str(folder / "ivy"), "-m2compatible", "-ivy", str(description), "-types", kind]
    command += ["-retrieve", str(folder / "[artifact].[ext]")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    path = folder / f"{name}.{kind}"
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != _ARCHIVES[name, kind]:
        raise RuntimeError(f"{path.name} has sha256 {digest}")
    return path
