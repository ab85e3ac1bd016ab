"""Checks of everything outside the program."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import click

from iceberg_maint.cli.context import Session, command
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.policy.data import Mode
from iceberg_maint.core.removal.clock_agreement import disagreement
from iceberg_maint.core.removal.unlogged_metadata import sign
from iceberg_maint.errors import (
    EXIT_DONE,
    EXIT_FAILED,
    ConfigurationError,
    IcebergMaintError,
    RefusedError,
    UnknownTableError,
)

if TYPE_CHECKING:
    from iceberg_maint.config import Config
    from iceberg_maint.ports.ledger import Ledger
    from iceberg_maint.runner.runtime import Runtime

_PACKAGES = ("pyspark", "pyiceberg", "pyiceberg-core", "dagster", "SQLAlchemy", "pyarrow")
_PROPERTIES_READ = 100
"""Tables whose properties are read: each is a request or a file, and there may be thousands."""
OK, WARNING, FAILED = "ok", "warning", "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing checked. `status` is ok, warning or failed."""

    name: str
    status: str
    detail: str
    code: str | None = None
    exit_code: int = EXIT_DONE


@click.command()
@click.option("--no-spark", is_flag=True, help="Do not start Spark; its versions stay unchecked.")
@click.option(
    "--accept-clock",
    is_flag=True,
    help="Forget the times that the ledger has noted: a clock was wrong and is right now.",
)
@command
def doctor(session: Session, no_spark: bool, accept_clock: bool) -> int:
    """Check environment, configuration, catalogs, ledger, versions and permissions.

    Exits with the code of the first check that failed.
    """
    from iceberg_maint.report.console import draw_rows

    if accept_clock:
        session.runtime().ledger.forget_clock_marks()
    checks = list(_checks(session, with_spark=not no_spark))
    colours = {OK: "green", WARNING: "yellow", FAILED: "red"}

    def draw(console: Any) -> None:
        from rich.markup import escape

        rows = [
            [c.name, f"[{colours[c.status]}]{c.status}[/]", escape(session.masked(c.detail))] for c in checks
        ]
        draw_rows(console, ["check", "status", "detail"], rows)

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
    yield _try("java", lambda: _java(config))
    yield _try("jars", lambda: _jars(config))
    listed: dict[str, list[TableId]] = {}
    for name in runtime.catalogs:
        yield from _catalog(config, runtime, name, listed)
    yield from _unused_patterns(config, listed)
    yield _try("ledger", lambda: _ledger(config, runtime.ledger))
    tables = sorted(table for found in listed.values() for table in found)
    if tables:
        yield _try("policies", lambda: _policies(config, runtime, tables))
        yield from _owners(runtime, tables)
    yield _try("clock", lambda: _clocks(config, runtime, tables))
    if os.environ.get("DAGSTER_HOME"):
        yield _try("dagster", _dagster)
    if with_spark:
        yield _try("spark", lambda: _spark(config))


def _try(name: str, body: Callable[[], str]) -> Check:
    try:
        return Check(name, OK, body())
    except IcebergMaintError as error:
        return Check(name, FAILED, str(error), error.code, error.exit_code)
    except Exception as error:  # noqa: BLE001 - the other checks are wanted all the same
        line = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return Check(name, FAILED, line, None, EXIT_FAILED)


def _packages() -> str:
    found = {p: metadata.version(p) for p in _PACKAGES}
    return ", ".join(f"{p} {v}" for p, v in found.items())


def _configuration(session: Session) -> str:
    session.runtime()
    return session.config().source


def _permissions(config: Config) -> Iterator[Check]:
    """Warnings of files that others may write or read."""
    from iceberg_maint.config.locations import sqlite_file

    file = Path(config.source)
    if file.is_file() and file.stat().st_mode & stat.S_IWOTH:
        yield Check(
            "permissions",
            WARNING,
            f"{file} may be written by every user of this machine, who would choose what this one runs; "
            f"chmod o-w {file}",
        )
    ledger = sqlite_file(config.ledger_url)
    if ledger is not None and ledger.is_file() and ledger.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield Check(
            "permissions",
            WARNING,
            f"{ledger} is open to other users than its owner: names and paths of every table are in it; "
            f"chmod go= {ledger}",
        )


def _java(config: Config) -> str:
    from iceberg_maint.spark.session.java import find_java

    java = find_java(os.environ, shim_dir=config.cache / "java")
    return f"Java {java.major_version} at {java.path} (from {java.source})"


def _jars(config: Config) -> str:
    from iceberg_maint.wiring import ready_spark_settings

    declared = config.spark.jars
    locked = len(ready_spark_settings(config).jars) - len(declared)
    told = [
        f"{jar.path} {'without a checksum' if jar.sha256 is None else 'with the right checksum'}"
        for jar in declared
    ]
    return "; ".join([f"{locked} jars with the right checksums in {config.cache / 'jars'}", *told])


def _catalog(
    config: Config, runtime: Runtime, name: str, tables: dict[str, list[TableId]]
) -> Iterator[Check]:
    """Checks of one catalog; what it lists is added to `tables` once it is reached."""
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
    if listed:
        yield _try(f"metadata of {listed[0]}", lambda: _read(runtime, listed[0]))
    if connection.warehouse is not None:
        warehouse = connection.warehouse
        probed = _try(f"warehouse of {name}", lambda: _probe(warehouse))
        if probed.code == "ICM-125" and _only_advises(config, listed):
            yield replace(probed, status=WARNING, detail=f"{probed.detail} Enough for mode: advise.")
        else:
            yield probed


def _unused_patterns(config: Config, listed: Mapping[str, list[TableId]]) -> Iterator[Check]:
    """Warnings of patterns that match no table, as far as the catalogs they may mean were reached."""
    tables = [table for found in listed.values() for table in found]
    if not tables:
        return
    away = set(config.catalogs) - set(listed)
    for pattern in config.patterns_without_table(tables):
        if not away or pattern.text.split(".")[0] in listed:
            yield Check("configuration", WARNING, f"{pattern.source} matches no table", "ICM-126")


def _ledger(config: Config, ledger: Ledger) -> str:
    # No run has this name. What must not be written is refused for a row that is not there, too.
    ledger.end_run("doctor")
    return f"{_place(config.ledger_url)}, clock {ledger.now_ms()}"


def _policies(config: Config, runtime: Runtime, tables: list[TableId]) -> str:
    """Makes every table's policy of the configuration, and of the first tables' own properties, which
    must be read. Raises what the first wrong one raises."""
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
    """Warnings of the first tables whose metadata folder has a sign of a second owner."""
    warned = 0
    for table in tables[:_PROPERTIES_READ]:
        found = _owner(runtime, table)
        if found is not None:
            warned += 1
            yield found
    if not warned:
        looked = min(len(tables), _PROPERTIES_READ)
        yield Check(
            "owners", OK, f"{looked} tables: no metadata file in their folders that is not in their log"
        )


def _owner(runtime: Runtime, table: TableId) -> Check | None:
    """A warning of one table; None where there is nothing to tell."""
    try:
        state = runtime.catalogs[table.catalog].pin(table)
        policy = runtime.policy_of(state).remove_orphan_files
        told = sign(runtime.orphan_files(table).second_owner(state, policy))
    except UnknownTableError:  # dropped since it was listed
        return None
    except IcebergMaintError as error:
        return Check(f"owner of {table}", WARNING, str(error), error.code)
    except Exception as error:  # noqa: BLE001 - each file system raises its own
        line = f"its metadata folder cannot be listed: {type(error).__name__}: {' '.join(str(error).split())}"
        return Check(f"owner of {table}", WARNING, line)
    return Check(f"owner of {table}", WARNING, told) if told else None


def _only_advises(config: Config, tables: list[TableId]) -> bool:
    """Whether the configuration lets nothing be done to these tables; False where it cannot be told."""
    try:
        modes = {config.policy_for(table, {}).policy.mode for table in tables}
    except ConfigurationError:
        return False
    return modes == {Mode.ADVISE}


def _read(runtime: Runtime, table: TableId) -> str:
    state = runtime.catalogs[table.catalog].pin(table)
    policy = runtime.policy_of(state)
    measured = runtime.catalogs[table.catalog].measure(state, policy.rewrite_data_files)
    return f"format version {state.format_version}, {measured.total().data_files} data files"


def _probe(warehouse: str) -> str:
    """Writes, reads and deletes a file of our own where the warehouse is a local folder; other
    stores are reached through tables' own credentials and are not probed."""
    parts = urlsplit(warehouse)
    if parts.scheme != "file":
        return f"{warehouse}: not probed, Spark's own file system reaches it"
    folder = Path(unquote(parts.path))
    if not folder.exists():
        return f"{folder}: made with the first table"
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".iceberg-maint-probe-") as probe:
            probe.write(b"probe")
            probe.flush()
            Path(probe.name).read_bytes()
    except OSError as why:
        raise RefusedError(
            "ICM-125",
            f"{folder} cannot be written: {why.strerror}.",
            "let the user of this process write there.",
        ) from why
    return f"{folder}: written, read, deleted"


def _clocks(config: Config, runtime: Runtime, tables: list[TableId]) -> str:
    """Reads all clocks, of the first table and its store too where files may be written there. Raises
    RefusedError ICM-115 where they disagree."""
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
    told = f"{abs(clocks.machine_ms - clocks.ledger_ms) / 1000:.1f} s between this machine and the ledger"
    if clocks.store_ms is None:
        return told
    apart = abs(clocks.machine_ms - clocks.store_ms) / 1000
    return f"{told}, {apart:.1f} s between it and the store of {tables[0]}"


def _dagster() -> str:
    from iceberg_maint.defs.instance import check_home

    try:
        return check_home()
    except IcebergMaintError:
        raise
    except Exception as why:  # only what builds on Dagster knows its errors
        raise ConfigurationError(
            "ICM-100",
            f"DAGSTER_HOME is {os.environ['DAGSTER_HOME']}, which cannot be used: {' '.join(str(why).split())}.",
            "name the folder of a Dagster instance; 'iceberg-maint init' writes one.",
        ) from why


def _spark(config: Config) -> str:
    from iceberg_maint.wiring import spark_versions

    found = spark_versions(config)
    return ", ".join(f"{name} {version}" for name, version in sorted(found.items()))


def _place(address: str) -> str:
    """An address without user and password."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
