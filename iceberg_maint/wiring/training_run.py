"""The run whose classes go into the archive: Spark as configured, on a small lake of its own in a temporary folder.

It maintains made-up tables: files to combine, position delete files (format v2) and deletion vectors (format v3). The tables of
the configuration are not in it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from iceberg_maint.config import Config
from iceberg_maint.config.catalogs import CatalogConfig
from iceberg_maint.core.model.ids import ALL_OPERATIONS, TableId
from iceberg_maint.engines.spark.session.class_archive import (
    COMMAND,
    check_writers,
    with_java_options,
    writing,
)
from iceberg_maint.engines.spark.session.session import exit_jvm, kill_jvm
from iceberg_maint.errors import ConfigurationError, RefusedError
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.maintain import maintain
from iceberg_maint.loop.request import Request
from iceberg_maint.wiring.adapters import build

CATALOG, NAMESPACE, SMALL_FILES = "lake", "db", "small_files"
FILES, ROWS, PARTITIONS = 6, 100, 2
# What decides the classes of a driver. Other settings may need a cluster.
_KEPT_SETTINGS = ("JavaOptions", "ClassPath", "LibraryPath", "driver.memory")


def write_class_archive(config: Config, target: Path) -> int:
    """Writes the archive of classes and returns its bytes. A file at `target` is replaced as a whole or stays.

    Ends the JVM of this process. Raises ConfigurationError ICM-100 if `target` cannot be written, RefusedError ICM-105 if
    other users could replace it, ICM-103 if Java writes no archive, and the errors of the start of Spark.
    """
    try:
        if target.is_dir() or not target.parent.is_dir():
            what = "is a folder" if target.is_dir() else "is in a folder that does not exist"
            raise ConfigurationError(
                "ICM-100", f"the archive {target} {what}.", "name a file in a folder that exists."
            )
        check_writers(target, is_replaced=True)
        with _own_folder(target) as folder:
            made = folder / target.name
            _train(config, made, folder / "java.log")
            made.chmod(0o400)
            size = made.stat().st_size
            made.replace(target)
    except OSError as why:
        raise ConfigurationError(
            "ICM-100",
            f"the archive {target} cannot be written: {why.strerror or why}.",
            "name a file in a folder that you may write to.",
        ) from why
    return size


@contextmanager
def _own_folder(target: Path) -> Iterator[Path]:
    """A folder beside the target that only this user can write into, for this call. Deletes those of calls that were killed:
    the lock of a call ends with its process."""
    prefix = f".{target.name}."
    for earlier in [f for f in target.parent.iterdir() if f.name.startswith(prefix) and f.is_dir()]:
        with suppress(BlockingIOError), _locked(earlier):
            shutil.rmtree(earlier, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=prefix) as folder, _locked(Path(folder)):
        yield Path(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Raises BlockingIOError if another process has locked the folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _train(config: Config, archive: Path, log: Path) -> None:
    # The lake needs a local disk for its databases. The archive may be on another one.
    with tempfile.TemporaryDirectory(prefix="iceberg_maint-") as folder:
        try:
            _work(_own_lake(config, Path(folder), writing(archive, log)))
            code = exit_jvm()
        finally:
            kill_jvm()
    # A JVM that is killed while it writes leaves a part of the archive.
    if code != 0 or not archive.exists():
        lines = log.read_text("utf-8", errors="replace").splitlines() if log.exists() else []
        cause = lines[-1].strip().rstrip(".") if lines else f"it ended with code {code} and named no cause"
        raise RefusedError(
            "ICM-103",
            f"Java wrote no archive of classes: {cause}.",
            "use an OpenJDK 17 or 21 with its own archive (java -Xshare:dump), a disk with 200 MB of room, and no folder with files "
            f"on the class path, and run {COMMAND} again; or remove spark.class_archive.",
        )


def _own_lake(config: Config, folder: Path, java_options: str) -> Config:
    """The configuration of a lake in this folder, with the configured Java options, class path and jars."""
    kept = {key: value for key, value in config.spark.conf.items() if key.endswith(_KEPT_SETTINGS)}
    conf = {**with_java_options(kept, java_options), "spark.sql.shuffle.partitions": "2"}
    catalog = CatalogConfig(CATALOG, "jdbc", f"sqlite:///{folder / 'catalog.db'}", folder.as_uri(), {})
    return replace(
        config,
        home=folder / "home",
        ledger_url=f"sqlite:///{folder / 'ledger.db'}",
        catalogs={CATALOG: catalog},
        spark=replace(config.spark, master="local[2]", conf=conf, class_archive=None),
        defaults={},
        catalog_policies={},
        patterns=(),
        telemetry=None,
        audit=None,
        alerts=None,
        fleet_budget=None,
    )


def _work(config: Config) -> None:
    context = build(config)
    _append_small_files(config.catalogs[CATALOG].pyiceberg_properties())
    _maintain(context, SMALL_FILES)
    spark = context.engine.spark.session()
    for version in (2, 3):
        table = f"deletes_v{version}"
        _write_deletes(spark, f"{CATALOG}.{NAMESPACE}.{table}", version)
        _maintain(context, table)


def _maintain(context: Context, table: str) -> None:
    # By force, because the tables are too small to be due.
    maintain(
        TableId(CATALOG, (NAMESPACE,), table),
        Request(f"train-{table}", None, None, True, ALL_OPERATIONS),
        context,
    )


def _append_small_files(properties: Mapping[str, str]) -> None:
    import pyarrow as pa
    from pyiceberg.catalog import load_catalog
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import LongType, NestedField, StringType

    catalog = load_catalog(CATALOG, **properties)
    catalog.create_namespace(NAMESPACE)
    schema = Schema(NestedField(1, "p", LongType()), NestedField(2, "v", StringType()))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"))
    table = catalog.create_table(f"{NAMESPACE}.{SMALL_FILES}", schema, partition_spec=spec)
    rows = {"p": [n % PARTITIONS for n in range(ROWS)], "v": [f"value {n}" for n in range(ROWS)]}
    for _ in range(FILES):
        table.append(pa.table(rows, schema=table.schema().as_arrow()))


def _write_deletes(spark: Any, name: str, version: int) -> None:
    modes = "'write.delete.mode'='merge-on-read','write.update.mode'='merge-on-read'"
    spark.sql(
        f"CREATE TABLE {name} (id bigint, p string) USING iceberg PARTITIONED BY (p) "
        f"TBLPROPERTIES ('format-version'='{version}',{modes})"
    )
    spark.sql(f"INSERT INTO {name} SELECT id, cast(id % {PARTITIONS} AS string) FROM range({ROWS})")
    spark.sql(f"UPDATE {name} SET id = id + 1 WHERE id % 7 = 0")
    spark.sql(f"DELETE FROM {name} WHERE id % 5 = 0")
