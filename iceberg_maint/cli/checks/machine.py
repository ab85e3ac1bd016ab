"""Checks of this machine: environment, disk, clocks, Java and Spark."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from iceberg_maint.cli.checks import (
    FAILED,
    OK,
    WARNING,
    Check,
    only_advises,
    try_check,
)
from iceberg_maint.core.model.ids import shell_argument
from iceberg_maint.core.removal.clock_skew import clock_skew_text
from iceberg_maint.errors import ConfigurationError, IcebergMaintError, RefusedError, unwritable_home
from iceberg_maint.machine.files import private_folder

if TYPE_CHECKING:
    from iceberg_maint.config import Config
    from iceberg_maint.core.model.ids import TableId
    from iceberg_maint.loop.context import Context

_PACKAGES = ("pyspark", "pyiceberg", "pyiceberg-core", "dagster", "SQLAlchemy", "pyarrow")
_ARCHIVE = "class archive"


def check_packages() -> str:
    """Returns the versions of the packages that matter."""
    versions = {p: metadata.version(p) for p in _PACKAGES}
    return ", ".join(f"{p} {v}" for p, v in versions.items())


def check_permissions(config: Config) -> Iterator[Check]:
    """Warnings of files that other users may write or read."""
    from iceberg_maint.config.locations import sqlite_file

    file = Path(config.source)
    if file.is_file() and file.stat().st_mode & stat.S_IWOTH:
        yield Check(
            "permissions",
            WARNING,
            f"Every user of this machine can write {file} and thereby choose what this user runs. "
            f"Fix: run chmod o-w {shell_argument(str(file))}.",
        )
    ledger = sqlite_file(config.ledger_url)
    if ledger is not None and ledger.is_file() and ledger.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield Check(
            "permissions",
            WARNING,
            f"Users other than its owner can open {ledger}, which contains the names and paths of all tables. "
            f"Fix: run chmod go= {shell_argument(str(ledger))}.",
        )


def check_home_folder(folder: Path) -> Check:
    """Whether the program can write its own files."""

    def write() -> str:
        try:
            private_folder(folder)
            with tempfile.NamedTemporaryFile(dir=folder, prefix=".probe-"):
                return str(folder)
        except OSError as why:
            raise unwritable_home(str(folder), why) from why

    return try_check("home", write)


def check_java(config: Config) -> str:
    """Returns version and place of Java. Raises RefusedError ICM-103 without a supported one."""
    from iceberg_maint.engines.spark.session.java import find_java

    java = find_java(os.environ, shim_dir=config.cache / "java")
    return f"Java {java.major_version} at {java.path} (from {java.source})"


def check_jars(config: Config) -> str:
    """Fetches missing jars and returns what was checked. Raises RefusedError ICM-103."""
    from iceberg_maint.wiring.spark_session import ready_spark_settings

    declared = config.spark.jars
    locked = len(ready_spark_settings(config).jars) - len(declared)
    checksums = [
        f"{jar.path} {'without a checksum' if jar.sha256 is None else 'with the right checksum'}"
        for jar in declared
    ]
    return "; ".join([f"{locked} jars with the right checksums in {config.cache / 'jars'}", *checksums])


def check_class_archive(config: Config) -> Check:
    """Writes the archive of Java's classes with which the JVM of a local master starts, unless it is there."""
    from iceberg_maint.engines.spark.session import class_archive
    from iceberg_maint.engines.spark.session.driver_jvm import class_path, executable, starts_here
    from iceberg_maint.engines.spark.session.settings import spark_conf
    from iceberg_maint.engines.spark.session.write_class_archive import write
    from iceberg_maint.wiring.spark_session import start_settings

    settings = start_settings(config)
    conf = spark_conf(settings)
    if settings.class_folder is None or not starts_here(conf):
        return Check(_ARCHIVE, OK, "none: Spark's launcher starts the JVM")
    archive = class_archive.archive_of(settings.class_folder, executable(os.environ), class_path(conf))
    problem = ""
    try:
        if archive.file() is None:
            private_folder(archive.folder)
            problem = write(archive)
        file = archive.file()
    except (OSError, RefusedError) as why:
        file, problem = None, str(why)
    if file is None:
        return Check(_ARCHIVE, WARNING, f"The JVM starts without one, more slowly: {problem}")
    return Check(_ARCHIVE, OK, f"{file} ({file.stat().st_size:,} bytes)")


def check_clocks(config: Config, context: Context, tables: list[TableId]) -> str:
    """Compares all clocks, with those of the first table and of its store if files may be written there.
    Raises RefusedError ICM-115 if they disagree."""
    from iceberg_maint.loop.read_table import clock_refusal, read_clocks

    state = context.catalogs.pin(tables[0]) if tables else None
    probed = None if only_advises(config, tables) else state
    clocks = read_clocks(
        context.clock,
        context.ledger,
        store_ms=None
        if probed is None
        else context.catalogs.in_time(probed.table, lambda: context.storage.now_ms(probed)),
        updated_ms=None if state is None else state.last_updated_ms,
    )
    if doubt := clock_skew_text(clocks):
        raise clock_refusal("every table", doubt)
    difference = (
        f"{abs(clocks.machine_ms - clocks.ledger_ms) / 1000:.1f} s between this machine and the ledger"
    )
    if clocks.store_ms is None:
        return difference
    apart = abs(clocks.machine_ms - clocks.store_ms) / 1000
    return f"{difference}, {apart:.1f} s between this machine and the store of {tables[0]}"


def check_dagster() -> str:
    """Returns what DAGSTER_HOME has. Raises ConfigurationError ICM-100 if it is no usable instance."""
    from iceberg_maint.defs.instance import check_home

    try:
        return check_home()
    except IcebergMaintError:
        raise
    except Exception as why:  # Dagster raises many error types
        raise ConfigurationError(
            "ICM-100",
            f"DAGSTER_HOME {os.environ['DAGSTER_HOME']} is no usable Dagster instance: {' '.join(str(why).split())}.",
            "set it to the folder of a Dagster instance; 'iceberg-maint init' writes one.",
        ) from why


def check_spark(config: Config) -> str:
    """Starts Spark and returns the versions of its parts."""
    from iceberg_maint.wiring.spark_session import spark_versions

    versions = spark_versions(config)
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))


def check_executors(config: Config) -> Check:
    """Whether the executors of a cluster have the packages of the strategy columnar."""
    from iceberg_maint.wiring.spark_session import executors_problem

    problem = executors_problem(config)
    if not problem:
        return Check("executors", OK, "their Python has the packages of the strategy columnar")
    return Check(
        "executors",
        WARNING,
        f"{problem}. Spark writes the batches itself (strategy native). Fix: set spark.pyspark.python, and ship the "
        "packages by spark.archives or the image (docs/how-to/cluster.md).",
        "ICM-133",
    )


def check_spark_catalogs(
    config: Config, context: Context, listed: Mapping[str, list[TableId]]
) -> Iterator[Check]:
    """Reads the first table of each catalog through Spark's own clients. Only the changes of a table need them."""
    for name, tables in listed.items():
        if not tables:
            continue
        read = partial(_spark_read, config, context, tables[0])
        check = try_check(f"spark catalog {name}", read)
        if check.status == FAILED and only_advises(config, tables):
            check = replace(check, status=WARNING, detail=f"{check.detail} Mode advise does not need it.")
        yield check
        if check.status == OK and config.catalogs[name].type == "rest" and not only_advises(config, tables):
            yield _requirements(config, tables[0])


def _spark_read(config: Config, context: Context, table: TableId) -> str:
    """Reads a file of the table by Spark, unless the table is refused: Spark would read a governed table."""
    from iceberg_maint.wiring.spark_session import spark_reads

    state = context.catalogs.pin(table)
    return f"{table} read by {spark_reads(config, table, state.metadata_location)}"


def _requirements(config: Config, table: TableId) -> Check:
    """Asks a REST catalog by a request that changes nothing whether it takes the requirements of our commits."""
    from iceberg_maint.wiring.spark_session import weak_requirements

    check = f"requirements of {table.catalog}"
    try:
        weak = weak_requirements(config, table)
    except Exception as error:  # noqa: BLE001 - an error must not stop the other checks
        weak = f"{type(error).__name__}: {' '.join(str(error).split())}"
    if weak is None:
        return Check(check, OK, "a commit is refused if schema, spec, sort order or a known ref has changed")
    return Check(
        check,
        WARNING,
        f"The catalog does not take the requirements of our commits: {weak}. It compares the table's UUID and the "
        "head of main only. Fix: change schemas and refs of a table only while no run maintains it.",
        "ICM-137",
    )
