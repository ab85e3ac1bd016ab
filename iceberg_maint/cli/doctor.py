"""Checks of the program's environment."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import click

from iceberg_maint.cli.context import Session, command
from iceberg_maint.core.health.source import choose_source
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.outcomes.environment import ENVIRONMENT_CODES
from iceberg_maint.core.policy.data import Mode
from iceberg_maint.core.policy.health import HealthSource
from iceberg_maint.core.removal.clock_agreement import disagreement
from iceberg_maint.core.removal.unlogged_metadata import sign
from iceberg_maint.errors import (
    EXIT_DONE,
    EXIT_FAILED,
    ConfigurationError,
    IcebergMaintError,
    RefusedError,
    UnknownTableError,
    unwritable_home,
)

if TYPE_CHECKING:
    from iceberg_maint.config import Config
    from iceberg_maint.ports.ledger import Ledger
    from iceberg_maint.runner.runtime import Runtime

_PACKAGES = ("pyspark", "pyiceberg", "pyiceberg-core", "dagster", "SQLAlchemy", "pyarrow")
_PROPERTIES_READ = 100
"""Number of tables whose properties are read. Each needs a request or a file, and there may be thousands."""
OK, WARNING, FAILED = "ok", "warning", "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. `status` is ok, warning or failed."""

    name: str
    status: str
    detail: str
    code: str | None = None
    exit_code: int = EXIT_DONE


@click.command()
@click.option("--no-spark", is_flag=True, help="Do not start Spark. Its versions are not checked.")
@click.option(
    "--accept-clock",
    is_flag=True,
    help="Forget the times in the ledger, after a wrong clock was set right.",
)
@command
def doctor(session: Session, no_spark: bool, accept_clock: bool) -> int:
    """Check environment, configuration, catalogs, ledger, versions and permissions.

    Exits with the code of the first check that failed.
    """
    from iceberg_maint.report.grid import write

    if accept_clock:
        session.runtime().ledger.forget_clock_marks()
    checks = list(_checks(session, with_spark=not no_spark))
    colours = {OK: "green", WARNING: "yellow", FAILED: "red"}

    def draw(console: Any) -> None:
        from rich.markup import escape

        for check in checks:
            status = f"[{colours[check.status]}]{check.status:<7}[/]"
            text = f"[bold]{escape(check.name)}[/]: {escape(session.masked(check.detail))}"
            write(console, f"{status}  {text}", " " * 9)

    shown = [{"check": c.name, "status": c.status, "detail": c.detail, "code": c.code} for c in checks]
    session.emit({"checks": shown}, draw)
    return next((c.exit_code for c in checks if c.status == FAILED), EXIT_DONE)


def _checks(session: Session, *, with_spark: bool) -> Iterator[Check]:
    yield Check("python", OK, f"{sys.version.split()[0]} at {sys.executable}")
    yield _try("packages", _packages)
    configured = _try("configuration", lambda: _configuration(session))
    yield configured
    if configured.status == FAILED:
        return
    config, runtime = session.config(), session.runtime()
    yield from _permissions(config)
    home = _home(config.home)
    if home.status == FAILED:
        yield home
    yield _try("java", lambda: _java(config))
    yield _try("jars", lambda: _jars(config))
    listed: dict[str, list[TableId]] = {}
    unread: set[str] = set()
    for name in runtime.catalogs:
        yield from _catalog(config, runtime, name, listed, unread)
    yield from _unused_patterns(config, listed)
    yield _try("ledger", lambda: _ledger(config, runtime.ledger))
    # One wrong credential would fail each further check of each table, with the same text.
    read = {name: tables for name, tables in listed.items() if name not in unread}
    tables = sorted(table for catalog_tables in read.values() for table in catalog_tables)
    if tables and home.status != FAILED:
        yield _try("policies", lambda: _policies(config, runtime, tables))
        yield from _owners(runtime, tables)
        yield from _memory(runtime, tables)
    yield _try("clock", lambda: _clocks(config, runtime, tables))
    if os.environ.get("DAGSTER_HOME"):
        yield _try("dagster", _dagster)
    if with_spark:
        started = _try("spark", lambda: _spark(config))
        yield started
        if started.status == OK:
            if not config.spark.master.startswith("local"):
                yield _executors(config)
            yield from _spark_catalogs(config, runtime, read)


def _try(name: str, body: Callable[[], str]) -> Check:
    try:
        return Check(name, OK, body())
    except IcebergMaintError as error:
        return Check(name, FAILED, str(error), error.code, error.exit_code)
    except Exception as error:  # noqa: BLE001 - an error must not stop the other checks
        line = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return Check(name, FAILED, line, None, EXIT_FAILED)


def _packages() -> str:
    versions = {p: metadata.version(p) for p in _PACKAGES}
    return ", ".join(f"{p} {v}" for p, v in versions.items())


def _configuration(session: Session) -> str:
    session.runtime()
    return session.config().source


def _permissions(config: Config) -> Iterator[Check]:
    """Warnings of files that other users may write or read."""
    from iceberg_maint.config.locations import sqlite_file

    file = Path(config.source)
    if file.is_file() and file.stat().st_mode & stat.S_IWOTH:
        yield Check(
            "permissions",
            WARNING,
            f"Every user of this machine can write {file} and thereby choose what this user runs. "
            f"Fix: run chmod o-w {file}.",
        )
    ledger = sqlite_file(config.ledger_url)
    if ledger is not None and ledger.is_file() and ledger.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield Check(
            "permissions",
            WARNING,
            f"Other users than its owner can open {ledger}, which holds names and paths of all tables. "
            f"Fix: run chmod go= {ledger}.",
        )


def _home(folder: Path) -> Check:
    """Whether the program can write its own files."""

    def write() -> str:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder, prefix=".probe-"):
                return str(folder)
        except OSError as why:
            raise unwritable_home(str(folder), why) from why

    return _try("home", write)


def _java(config: Config) -> str:
    from iceberg_maint.spark.session.java import find_java

    java = find_java(os.environ, shim_dir=config.cache / "java")
    return f"Java {java.major_version} at {java.path} (from {java.source})"


def _jars(config: Config) -> str:
    from iceberg_maint.wiring import ready_spark_settings

    declared = config.spark.jars
    locked = len(ready_spark_settings(config).jars) - len(declared)
    checksums = [
        f"{jar.path} {'without a checksum' if jar.sha256 is None else 'with the right checksum'}"
        for jar in declared
    ]
    return "; ".join([f"{locked} jars with the right checksums in {config.cache / 'jars'}", *checksums])


def _catalog(
    config: Config, runtime: Runtime, name: str, tables: dict[str, list[TableId]], unread: set[str]
) -> Iterator[Check]:
    """Checks of one catalog. Adds its tables to `tables` if the catalog answers, and its name to `unread` if the
    environment fails the read of its first table."""
    connection = config.catalogs[name]
    listed: list[TableId] = []

    def reach() -> str:
        listed.extend(runtime.catalogs[name].tables())
        tables[name] = listed
        where = "" if connection.uri is None else f" at {_place(connection.uri)}"
        return f"{connection.type}{where}: {len(listed)} tables"

    reached = _try(f"catalog {name}", reach)
    yield reached
    if reached.status == FAILED:
        return
    if not listed:
        yield from _other_name(runtime, name)
    else:
        measured = _try(f"metadata of {listed[0]}", lambda: _read(runtime, listed[0]))
        if measured.code in ENVIRONMENT_CODES:
            unread.add(name)
            left_out = f"Until then doctor leaves out the other checks of the tables of {name}."
            measured = replace(measured, detail=f"{measured.detail} {left_out}")
        yield measured
        # The rights say which one is missing.
        if measured.status == OK or measured.code == "ICM-125":
            yield from _rights(config, runtime, listed)
    if connection.warehouse is not None:
        warehouse = connection.warehouse
        probed = _try(f"warehouse of {name}", lambda: _probe(warehouse))
        if probed.code == "ICM-125" and _only_advises(config, listed):
            yield replace(probed, status=WARNING, detail=f"{probed.detail} Mode advise does not need it.")
        else:
            yield probed


def _other_name(runtime: Runtime, name: str) -> Iterator[Check]:
    """A warning of a JDBC catalog without tables whose database has tables under another name of a catalog."""
    from iceberg_maint.wiring import stored_names

    if names := stored_names(runtime.catalogs, name):
        yield Check(
            f"catalog {name}",
            WARNING,
            f"Its database has tables of another catalog name: {', '.join(names)}. JDBC catalogs store the name. "
            f"Fix: rename catalogs.{name} to that name.",
        )


def _rights(config: Config, runtime: Runtime, listed: list[TableId]) -> Iterator[Check]:
    """Probes every right on the first table of a catalog, one by one. Mode advise needs the rights to read only."""
    from iceberg_maint.wiring import missing_rights

    check, present = f"rights on {listed[0]}", []
    try:
        for right, error in missing_rights(
            runtime.catalogs, listed[0], changes=not _only_advises(config, listed)
        ):
            if error is None:
                present.append(right.value)
            else:
                yield Check(check, FAILED, str(error), error.code, error.exit_code)
    except IcebergMaintError as error:
        yield Check(check, FAILED, str(error), error.code, error.exit_code)
    except Exception as error:  # noqa: BLE001 - each file system raises its own
        line = f"{type(error).__name__}: {' '.join(str(error).split())}"
        yield Check(check, FAILED, line, None, EXIT_FAILED)
    if present:
        yield Check(check, OK, f"{', '.join(present)} permitted")


def _unused_patterns(config: Config, listed: Mapping[str, list[TableId]]) -> Iterator[Check]:
    """Warnings of patterns that match no table, if the catalogs that they may name answered."""
    tables = [table for catalog_tables in listed.values() for table in catalog_tables]
    if not tables:
        return
    unreachable = set(config.catalogs) - set(listed)
    for pattern in config.patterns_without_table(tables):
        if not unreachable or pattern.text.split(".")[0] in listed:
            yield Check("configuration", WARNING, f"{pattern.source} matches no table.", "ICM-126")


def _ledger(config: Config, ledger: Ledger) -> str:
    # No run has this name. A ledger that is read-only refuses the statement although it changes no row.
    ledger.end_run("doctor")
    from iceberg_maint.report.formatting import moment

    return f"{_place(config.ledger_url)}, clock {moment(ledger.now_ms())}"


def _policies(config: Config, runtime: Runtime, tables: list[TableId]) -> str:
    """Builds every table's policy from the configuration, and the first tables' policies also from their
    properties. Raises the error of the first wrong one."""
    for table in tables:
        config.policy_for(table)
    for table in tables[:_PROPERTIES_READ]:
        try:
            state = runtime.catalogs[table.catalog].pin(table)
        except UnknownTableError:  # dropped since it was listed
            continue
        config.policy_for(table, state.properties)
    read = "" if len(tables) <= _PROPERTIES_READ else f"; properties of the first {_PROPERTIES_READ} read"
    return f"{len(tables)} tables{read}"


def _owners(runtime: Runtime, tables: list[TableId]) -> Iterator[Check]:
    """Warnings of tables whose metadata folder has a sign of a second owner, among the first tables."""
    warned = 0
    for table in tables[:_PROPERTIES_READ]:
        warning = _owner(runtime, table)
        if warning is not None:
            warned += 1
            yield warning
    if not warned:
        count = min(len(tables), _PROPERTIES_READ)
        yield Check(
            "owners", OK, f"{count} tables: no metadata file in their folders that is not in their log"
        )


def _owner(runtime: Runtime, table: TableId) -> Check | None:
    """The warning of one table; None without a sign of a second owner."""
    try:
        state = runtime.catalogs[table.catalog].pin(table)
        policy = runtime.policy_of(state).remove_orphan_files
        message = sign(runtime.orphan_files(table).second_owner(state, policy))
    except UnknownTableError:  # dropped since it was listed
        return None
    except IcebergMaintError as error:
        return Check(f"owner of {table}", WARNING, str(error), error.code)
    except Exception as error:  # noqa: BLE001 - each file system raises its own
        line = f"The metadata folder cannot be listed: {type(error).__name__}: {' '.join(str(error).split())}"
        return Check(f"owner of {table}", WARNING, line)
    return Check(f"owner of {table}", WARNING, message) if message else None


def _memory(runtime: Runtime, tables: list[TableId]) -> Iterator[Check]:
    """What the executors of a cluster declare, and warnings of tables that ran out of memory, among the first tables."""
    from iceberg_maint.core.planning.spark_memory import default_budget_bytes, memory_of_heap, setting_text
    from iceberg_maint.runner.spark_memory import recorded_shortages

    declared = runtime.spark.memory
    if declared is None:
        return
    if not declared.is_local:
        budget = default_budget_bytes(
            memory_of_heap(declared.executor_bytes, declared.fraction, declared.slots)
        )
        yield Check(
            "spark memory",
            OK,
            f"executors of {setting_text(declared.executor_bytes)} run {declared.slots} at once; equality deletes get "
            f"{setting_text(max(0, budget))} of it by default",
        )
    name = "spark.driver.memory" if declared.is_local else "spark.executor.memory"
    for text in recorded_shortages(tables[:_PROPERTIES_READ], runtime):
        fix = f"Fix: raise {name} under spark.conf, or equality_deletes.memory if it is set."
        yield Check("spark memory", WARNING, f"{text} {fix}", "ICM-165")


def _only_advises(config: Config, tables: list[TableId]) -> bool:
    """Whether the configuration permits no change of these tables; False if it has an error."""
    try:
        modes = {config.policy_for(table, {}).policy.mode for table in tables}
    except ConfigurationError:
        return False
    return modes == {Mode.ADVISE}


def _read(runtime: Runtime, table: TableId) -> str:
    state = runtime.catalogs[table.catalog].pin(table)
    policy = runtime.policy_of(state)
    if choose_source(policy.health, state) is HealthSource.SPARK:
        return (
            f"format version {state.format_version}; Spark measures its health (health.source, health.memory)"
        )
    measured = runtime.catalogs[table.catalog].measure(state, policy.rewrite_data_files)
    return f"format version {state.format_version}, {measured.total().data_files} data files"


def _probe(warehouse: str) -> str:
    """Writes, reads and deletes a file in a warehouse that is a local folder.

    In other stores the rights are probed where the first table is.
    """
    parts = urlsplit(warehouse)
    if parts.scheme != "file":
        return f"{warehouse}: not probed; the rights are probed on a table"
    folder = Path(unquote(parts.path))
    if not folder.exists():
        return f"{folder}: does not exist; the first table creates it"
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".iceberg-maint-probe-") as probe:
            probe.write(b"probe")
            probe.flush()
            Path(probe.name).read_bytes()
    except OSError as why:
        raise RefusedError(
            "ICM-125",
            f"{folder} cannot be written: {why.strerror}.",
            "give the user of this process write permission.",
        ) from why
    return f"{folder}: written, read, deleted"


def _clocks(config: Config, runtime: Runtime, tables: list[TableId]) -> str:
    """Compares all clocks, with those of the first table and of its store if files may be written there.
    Raises RefusedError ICM-115 if they disagree."""
    from iceberg_maint.runner.clocks import clock_refusal, read_clocks

    state = runtime.catalogs[tables[0].catalog].pin(tables[0]) if tables else None
    probed = None if _only_advises(config, tables) else state
    clocks = read_clocks(
        runtime.clock,
        runtime.ledger,
        store_ms=None if probed is None else runtime.store_now_ms(probed),
        updated_ms=None if state is None else state.last_updated_ms,
    )
    if doubt := disagreement(clocks):
        raise clock_refusal("every table", doubt)
    difference = (
        f"{abs(clocks.machine_ms - clocks.ledger_ms) / 1000:.1f} s between this machine and the ledger"
    )
    if clocks.store_ms is None:
        return difference
    apart = abs(clocks.machine_ms - clocks.store_ms) / 1000
    return f"{difference}, {apart:.1f} s between this machine and the store of {tables[0]}"


def _dagster() -> str:
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


def _spark(config: Config) -> str:
    from iceberg_maint.wiring import spark_versions

    versions = spark_versions(config)
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))


def _executors(config: Config) -> Check:
    """Whether the executors of a cluster have the packages of the strategy columnar."""
    from iceberg_maint.wiring import executors_problem

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


def _spark_catalogs(config: Config, runtime: Runtime, listed: Mapping[str, list[TableId]]) -> Iterator[Check]:
    """Reads the first table of each catalog through Spark's own clients. Only the changes of a table need them."""
    for name, tables in listed.items():
        if not tables:
            continue
        read = partial(_spark_read, config, runtime, tables[0])
        check = _try(f"spark catalog {name}", read)
        if check.status == FAILED and _only_advises(config, tables):
            check = replace(check, status=WARNING, detail=f"{check.detail} Mode advise does not need it.")
        yield check
        if check.status == OK and config.catalogs[name].type == "rest" and not _only_advises(config, tables):
            yield _requirements(config, tables[0])


def _spark_read(config: Config, runtime: Runtime, table: TableId) -> str:
    """Reads a file of the table by Spark, unless the table is refused: Spark would read a governed table."""
    from iceberg_maint.wiring import spark_reads

    state = runtime.catalogs[table.catalog].pin(table)
    return f"{table} read by {spark_reads(config, table, state.metadata_location)}"


def _requirements(config: Config, table: TableId) -> Check:
    """Asks a REST catalog by a request that changes nothing whether it takes the requirements of our commits."""
    from iceberg_maint.wiring import weak_requirements

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


def _place(address: str) -> str:
    """The address without user and password."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
