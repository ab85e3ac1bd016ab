"""The configuration files of the suites on a cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from iceberg_maint.defs.names import INSTANCE
from iceberg_maint.demo.workspace import place
from iceberg_maint_tests.qualification.cluster.store import KEY, REGION, SECRET
from iceberg_maint_tests.support import jvm

_CONFIG = """\
ledger: {database}/ledger
catalogs:
  lake:
    type: rest
    uri: {catalog}
    properties:
{properties}
spark:
  master: {master}
  jars: [{bundle}]
  conf:
    spark.driver.memory: 1g
    spark.driver.host: 127.0.0.1
    spark.driver.bindAddress: 127.0.0.1
    spark.executor.memory: 1g
    spark.executor.cores: 1
    spark.cores.max: 2
    spark.sql.shuffle.partitions: 2
    spark.pyspark.python: {python}
    spark.executor.defaultJavaOptions: {java_options}
"""
PACKAGES = """\
    # The packages of the columnar engine. Each executor unpacks the archive into its own folder.
    spark.archives: {folder}/dependencies.tar.gz#dependencies
    spark.executorEnv.PYTHONPATH: ./dependencies
"""
_DEMO = """\
defaults:
  retry: {backoff_seconds: 30}
tables:
  "lake.demo.flights_by_month": {rewrite_data_files: {strategy: native}}
  "lake.demo.lineitem": {rewrite_data_files: {strategy: columnar}}
  "lake.demo.cdc_*": {rewrite_data_files: {equality_delete_max_age_seconds: 0}}
  "lake.demo.weather_by_day": {expire_snapshots: {max_snapshot_age_seconds: 0, min_snapshots_to_keep: 5}}
"""
_BACKEND = """\
ledger: sqlite:///{folder}/backend.db
catalogs:
  backend: {{type: jdbc, uri: "{database}/catalog", warehouse: "file://{folder}/backend"}}
spark:
  master: local[1]
  jars: [{bundle}]
  conf: {{spark.driver.memory: 512m}}
"""
_SECRETS = {"s3.access-key-id": {"env": "CLUSTER_KEY"}, "s3.secret-access-key": {"env": "CLUSTER_SECRET"}}
ENVIRONMENT = {"CLUSTER_KEY": KEY, "CLUSTER_SECRET": SECRET}
"""The configuration names these variables."""
_STORAGE = """
storage:
  postgres:
    postgres_url: {database}/dagster
"""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the servers are: the store, the database server, the catalog, and the jar of the store's client."""

    store: str
    database: str
    catalog: str
    bundle: Path


def catalog_properties(addresses: Addresses) -> Mapping[str, str]:
    """The properties of a catalog whose tables are in the store."""
    return {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": addresses.store,
        "s3.path-style-access": "true",
        "s3.access-key-id": KEY,
        "s3.secret-access-key": SECRET,
        "s3.region": REGION,
        "client.region": REGION,
    }


def configuration(folder: Path, addresses: Addresses, master: str, more: str) -> str:
    """The configuration of the program. `more` is YAML: further settings of Spark, then other sections."""
    return (_CONFIG + more).format_map(_values(folder, addresses, master))


def write_backend(folder: Path, addresses: Addresses) -> None:
    """Writes the configuration of the catalog's server."""
    (folder / "backend.yaml").write_text(
        _BACKEND.format_map(_values(folder, addresses, "")), encoding="utf-8"
    )


def write_configuration(folder: Path, addresses: Addresses, master: str) -> None:
    """Writes the configuration of the program, of the catalog's server and of Dagster for the demo."""
    where = place(folder)
    policies = _DEMO.replace("{", "{{").replace("}", "}}")
    where.config.write_text(configuration(folder, addresses, master, PACKAGES + policies), encoding="utf-8")
    write_backend(folder, addresses)
    where.prepare(os.environ)
    with (where.dagster_home / INSTANCE).open("a", encoding="utf-8") as instance:
        instance.write(_STORAGE.format(database=addresses.database))


def _values(folder: Path, addresses: Addresses, master: str) -> Mapping[str, object]:
    properties = catalog_properties(addresses)
    return {
        "folder": folder,
        "database": addresses.database,
        "catalog": addresses.catalog,
        "bundle": addresses.bundle,
        "master": master,
        # The interpreter without the packages of this environment.
        "python": Path(sys.executable).resolve(),
        "java_options": jvm.environment()["SPARK_SUBMIT_OPTS"],
        "properties": "\n".join(f"      {k}: {_SECRETS.get(k, v)!r}" for k, v in properties.items()),
    }
