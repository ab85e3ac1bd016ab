"""The catalogs, each as the section of the configuration that names it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from iceberg_maint_tests.qualification.surroundings.parts import Parts
from iceberg_maint_tests.qualification.surroundings.stores import KEY_ID, REGION, SECRET, Store, wait_for
from iceberg_maint_tests.support import jvm
from iceberg_maint_tests.support.servers.postgres import postgres
from iceberg_maint_tests.support.servers.programs import free_port, process


@dataclass(frozen=True, slots=True)
class Surrounding:
    """One catalog on one store. `environment` is what a process of the program needs beside it."""

    catalog: str
    store: Store
    type: str
    uri: str | None
    warehouse: str | None
    jars: Sequence[Path]
    properties: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def configuration(self, folder: Path, **changes: str) -> str:
        """The file of the program's configuration. `changes` replace properties of the catalog."""
        lines = [f"ledger: sqlite:///{folder}/ledger.db", "catalogs:", "  lake:", f"    type: {self.type}"]
        if self.uri is not None:
            lines.append(f"    uri: '{self.uri}'")
        if self.warehouse is not None:
            lines.append(f"    warehouse: '{self.warehouse}'")
        properties = {**self.store.properties, **self.properties, **changes}
        if properties:
            lines.append("    properties:")
            lines += [
                f"      {key}: {value if value.startswith('{') else repr(value)}"
                for key, value in properties.items()
            ]
        lines += ["spark:", "  master: local[2]"]
        lines.append("  conf: {spark.driver.memory: 1g, spark.sql.shuffle.partitions: '2'}")
        lines.append(f"  jars: [{', '.join(map(str, self.jars))}]")
        return "\n".join(lines) + "\n"


def _jars(store: Store, parts: Parts) -> Sequence[Path]:
    return parts.jars(store.jars) if store.jars else ()


@contextmanager
def sqlite(folder: Path, store: Store, parts: Parts) -> Iterator[Surrounding]:
    """Iceberg's JDBC catalog in a SQLite file."""
    uri = f"sqlite:///{folder}/catalog.db"
    yield Surrounding("sqlite", store, "jdbc", uri, store.warehouse, _jars(store, parts))


@contextmanager
def postgresql(folder: Path, store: Store, parts: Parts) -> Iterator[Surrounding]:
    """Iceberg's JDBC catalog in PostgreSQL."""
    with postgres() as uri:
        yield Surrounding("postgresql", store, "jdbc", uri, store.warehouse, _jars(store, parts))


@contextmanager
def rest(folder: Path, store: Store, parts: Parts) -> Iterator[Surrounding]:
    """Iceberg's own handlers of the REST API in a process of their own."""
    port, jars = free_port(), _jars(store, parts)
    config = folder / "rest.yaml"
    backend = Surrounding("rest", store, "jdbc", f"sqlite:///{folder}/rest.db", store.warehouse, jars)
    config.write_text(backend.configuration(folder), encoding="utf-8")
    module = "iceberg_maint_tests.qualification.chaos.rest_catalog"
    # The handlers take the address as a configuration has it.
    command = [sys.executable, "-m", module, str(config), str(port), str(backend.uri), store.warehouse]
    command += [f"{k}={v}" for k, v in store.resolved().items()]
    with process(command, folder / "rest.log", {**jvm.environment(), **store.secrets}):
        wait_for(f"http://127.0.0.1:{port}/v1/config")
        yield Surrounding("rest", store, "rest", f"http://127.0.0.1:{port}", None, jars)


@contextmanager
def nessie(folder: Path, store: Store, parts: Parts) -> Iterator[Surrounding]:
    """Nessie's Iceberg REST endpoint, its versions in memory."""
    port, management = free_port(), free_port()
    s3 = "nessie.catalog.service.s3.default-options"
    settings = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": port,
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": management,
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.catalog.default-warehouse": "lake",
        "nessie.catalog.warehouses.lake.location": store.warehouse,
        f"{s3}.endpoint": store.endpoint,
        f"{s3}.region": REGION,
        f"{s3}.path-style-access": "true",
        f"{s3}.request-signing-enabled": "false",
        f"{s3}.access-key": "urn:nessie-secret:quarkus:lake.s3",
        "lake.s3.name": KEY_ID,
        "lake.s3.secret": SECRET,
    }
    options = [f"-D{key}={value}" for key, value in settings.items()]
    command = [str(parts.java21), "-Xmx512m", *options, "-jar", str(parts.nessie())]
    with process(command, folder / "nessie.log"):
        wait_for(f"http://127.0.0.1:{port}/iceberg/v1/config")
        uri = f"http://127.0.0.1:{port}/iceberg"
        yield Surrounding("nessie", store, "rest", uri, "lake", _jars(store, parts))


@contextmanager
def hive(folder: Path, store: Store, parts: Parts) -> Iterator[Surrounding]:
    """Hive Metastore 3.1.3 on Derby, with its lock tables."""
    port, home = free_port(), folder / "hive"
    (home / "folders").mkdir(parents=True)
    classpath = ":".join(map(str, parts.jars("hive")))
    module = "iceberg_maint_tests.qualification.surroundings.metastore"
    command = [sys.executable, "-m", module, str(port), str(home), str(parts.java), classpath]
    with process(command, folder / "hive.log"):
        uri = f"thrift://127.0.0.1:{port}"
        wait_for_line(folder / "hive.log", "serves")
        yield Surrounding("hive", store, "hive", uri, store.warehouse, _jars(store, parts))


@contextmanager
def glue(folder: Path, store: Store, parts: Parts) -> Iterator[Surrounding]:
    """Glue of moto. Java's client takes its credentials from the environment only."""
    secrets = {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION}
    properties = {
        "glue.endpoint": str(store.endpoint),
        "glue.region": REGION,
        "glue.access-key-id": "{env: SURROUNDINGS_KEY_ID}",
        "glue.secret-access-key": "{env: SURROUNDINGS_SECRET}",
    }
    yield Surrounding("glue", store, "glue", None, store.warehouse, _jars(store, parts), properties, secrets)


CATALOGS = {f.__name__: f for f in (sqlite, postgresql, rest, nessie, hive, glue)}


def wait_for_line(log: Path, word: str, seconds: float = 90.0) -> None:
    """Waits until a program has written the word. Raises TimeoutError, also for one that ended with a stack."""
    deadline = time.monotonic() + seconds
    while word not in (text := log.read_text(encoding="utf-8", errors="replace")):
        if time.monotonic() > deadline or "Traceback" in text:
            raise TimeoutError(f"{log} does not say {word}: {text[-300:]}")
        time.sleep(0.2)
