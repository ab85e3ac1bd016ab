"""Wiring: builds the context with the real adapters from the configuration, each at its first use."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from iceberg_maint.config import Config, load_config, redact, redact_error
from iceberg_maint.core.decisions.applicability import SPARK_4, RowTypes, row_types
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.planning.spark_memory import declared_memory
from iceberg_maint.core.removal.clock_skew import Uptime
from iceberg_maint.errors import EXIT_FAILED, IcebergMaintError
from iceberg_maint.loop.context import (
    Context,
    EngineAccess,
    Observers,
    OwnProcess,
    Policies,
    PolicyFor,
    SparkAccess,
    Storage,
)
from iceberg_maint.loop.fleet.catalogs import Catalogs
from iceberg_maint.ports.catalog import Catalog, Right
from iceberg_maint.ports.clock import Clock
from iceberg_maint.ports.engine import Engine, Verifier
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.wiring.integrations import integration
from iceberg_maint.wiring.spark_session import (
    checked,
    driver,
    launched_spark_conf,
    scratch_folders,
    session,
    spark_settings,
)
from iceberg_maint.wiring.statement_engines import statement_engines

if TYPE_CHECKING:
    from iceberg_maint.catalog.adapter import PyIcebergCatalog
    from iceberg_maint.catalog.location_owners import FleetLocationOwners
    from iceberg_maint.catalog.service_calls import CallBudget
    from iceberg_maint.core.commits.change import MetadataReader
    from iceberg_maint.removal.remove_orphans import OrphanRemoval, Scope

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Milliseconds since epoch, UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_seconds(self) -> float:
        """Seconds of a clock that never moves backwards, for durations."""
        return time.monotonic()

    def uptime(self) -> Uptime | None:
        """The uptime of Linux, with the sleep of the machine; None on other systems."""
        try:
            boot = _BOOT_ID.read_text(encoding="ascii").strip()
            return Uptime(boot[:64], time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000)
        except (OSError, AttributeError, UnicodeDecodeError):
            return None

    def sleep(self, seconds: float) -> None:
        """Waits for this time."""
        time.sleep(seconds)


class ConfiguredCatalogs(Mapping[str, Catalog]):
    """The configured catalogs by name. The first look-up of a catalog makes its adapter. The ledger learns of the
    tables that are refused for their read restrictions."""

    def __init__(self, config: Config, ledger: Ledger | None = None) -> None:
        self._config = config
        self._ledger = ledger
        self._adapters: dict[str, PyIcebergCatalog] = {}
        self._budgets: dict[str, CallBudget] = {}

    def __getitem__(self, name: str) -> PyIcebergCatalog:
        if name not in self._adapters:
            from iceberg_maint.catalog.adapter import PyIcebergCatalog
            from iceberg_maint.catalog.approved_io import guarded_properties
            from iceberg_maint.catalog.manifests.memo import ManifestMemo
            from iceberg_maint.core.model.location import ApprovedLocations

            properties = self._config.catalogs[name].pyiceberg_properties()
            approved = self._config.catalogs[name].approved_locations
            if approved is not None:
                properties = guarded_properties(properties, ApprovedLocations(approved))
            memo = ManifestMemo(self._config.home / "manifests.db")
            adapter = PyIcebergCatalog(
                name,
                properties,
                memo,
                on_governed=self._mark_governed,
                calls=self.budget(name),
            )
            self._adapters.setdefault(name, adapter)
        return self._adapters[name]

    def budget(self, name: str) -> CallBudget:
        """The budget of calls of a catalog, which all its clients in this process share."""
        from iceberg_maint.catalog.service_calls import CallBudget

        if name not in self._budgets:
            config = self._config.catalogs[name]
            # The clock of the calls begins again with the machine, and is another one on each machine.
            uptime = SystemClock().uptime()
            file = f"{name}-{uptime.boot[:8] if uptime else 'boot'}"
            file_of_calls = self._config.home / "calls" / file
            budget = CallBudget(config.calls_per_second, file_of_calls, limits=config.cycle_limits)
            self._budgets.setdefault(name, budget)
        return self._budgets[name]

    def take_calls(self, table: str, calls: int) -> None:
        """Takes calls that another client is about to make on a table: see `CallBudget.take`."""
        name = table.partition(".")[0]
        if name in self._config.catalogs:
            self.budget(name).take(calls)

    def is_limited(self) -> bool:
        """Returns whether a catalog has approved locations."""
        return any(c.approved_locations is not None for c in self._config.catalogs.values())

    def calls(self) -> int:
        """The calls of this process so far, to all catalogs."""
        return sum(budget.calls for budget in list(self._budgets.values()))

    def _mark_governed(self, table: TableId) -> None:
        if self._ledger is not None:
            self._ledger.health.mark_governed(table)

    def __iter__(self) -> Iterator[str]:
        return iter(self._config.catalogs)

    def __len__(self) -> int:
        return len(self._config.catalogs)


def build(config: Config) -> Context:
    """Builds the context of a configuration. Raises the errors of unsafe settings. Opens no connection."""
    from iceberg_maint.ledger.ledger import sql_ledger

    spark_settings(config)
    clock, ledger = SystemClock(), sql_ledger(config.ledger_url)
    catalogs, secrets = ConfiguredCatalogs(config, ledger), config.secrets
    spark = _spark_access(config, catalogs)
    return Context(
        Catalogs(catalogs, catalogs.calls),
        ledger,
        clock,
        Policies(policies(config), config.fleet_budget),
        EngineAccess(
            lambda: spark_engine(catalogs, lambda: driver(config)),
            spark,
            _row_types(),
            statement_engines(config.engines),
        ),
        Storage(
            OrphanScans(config, catalogs, clock, ledger), now_ms=lambda state: store_now_ms(catalogs, state)
        ),
        Observers(
            integration(config, "telemetry").telemetry(config),
            integration(config, "audit").audit(config, ledger),
        ),
        OwnProcess(
            masked=lambda text: redact(text, secrets),
            redacted_error=lambda error: redact_error(error, secrets),
            cpu_seconds=_cpu_seconds(config),
            scratch_folders=scratch_folders(config),
        ),
    )


def end_process(why: str) -> NoReturn:
    """Ends this process and its JVM at once, without an orderly end: for a call that nothing else ends. Says why on
    stderr, whose lock another thread may hold."""
    with suppress(OSError):
        os.write(2, f"{why}\n".encode())
    # A JVM exists only where Spark was imported.
    if "pyspark" in sys.modules:
        from iceberg_maint.engines.spark.session.driver_jvm import kill_jvm

        with suppress(Exception):
            kill_jvm()
    os._exit(EXIT_FAILED)


def _cpu_seconds(config: Config) -> Callable[[], float | None]:
    """The CPU seconds of this process and Spark's so far. Spark on a cluster works on other machines."""
    if not config.spark.master.startswith("local"):
        return lambda: None

    def of_tree() -> float | None:
        from iceberg_maint.engines.spark.session.process_tree import tree_cpu_seconds

        return tree_cpu_seconds()

    return of_tree


def _row_types() -> RowTypes:
    """The types that the installed Spark reads. Spark does not start for it."""
    try:
        return row_types(version("pyspark"))
    except PackageNotFoundError:
        return SPARK_4


def load(path: Path | None) -> Context:
    """Builds the context from a configuration file and this process's environment."""
    return build(load_config(path, os.environ))


def policies(config: Config, overrides: Mapping[str, str] | None = None) -> PolicyFor:
    """The effective policies of a configuration; the `overrides` win over every other source."""
    return lambda table, properties: config.policy_for(table, properties, overrides).policy


def store_now_ms(catalogs: Mapping[str, Catalog], state: TableState) -> int | None:
    """The clock of a table's store; None for a catalog without files."""
    from iceberg_maint.catalog.adapter import PyIcebergCatalog
    from iceberg_maint.catalog.approved_io import open_store

    catalog = catalogs[state.table.catalog]
    if not isinstance(catalog, PyIcebergCatalog):
        return None
    return open_store(catalog.io_of(state.table), state.location).now_ms(state.location)


def stored_names(catalogs: Mapping[str, Catalog], name: str) -> tuple[str, ...]:
    """The names of the catalogs that have tables in the database of this JDBC catalog; none for another catalog."""
    from iceberg_maint.catalog.adapter import PyIcebergCatalog

    catalog = catalogs[name]
    return catalog.stored_names() if isinstance(catalog, PyIcebergCatalog) else ()


def missing_rights(
    catalogs: Mapping[str, Catalog], table: TableId, *, changes: bool
) -> Iterator[tuple[Right, IcebergMaintError | None]]:
    """The rights on a table, each with its refusal if it is missing; none for a catalog without files."""
    from iceberg_maint.catalog.adapter import PyIcebergCatalog

    catalog = catalogs[table.catalog]
    if isinstance(catalog, PyIcebergCatalog):
        yield from catalog.missing_rights(table, changes=changes)


class OrphanScans:
    """Makes the orphan scan of each table. A scan compares the table with all tables of all catalogs. The ledger
    keeps what the scans read of those tables."""

    def __init__(self, config: Config, catalogs: Mapping[str, Catalog], clock: Clock, ledger: Ledger) -> None:
        self._scratch = config.home / "orphans"
        self._ledger = ledger
        self._catalogs = catalogs
        self._clock = clock
        self._is_first = True

    def __call__(self, table: TableId, scope: Scope | None = None) -> OrphanRemoval:
        """The orphan scan of one table. The first one deletes what scans have not used for months."""
        from iceberg_maint.catalog.approved_io import open_store
        from iceberg_maint.catalog.reachable_files import MetadataWalk
        from iceberg_maint.removal.remove_orphans import CleanupContext, OrphanRemoval, Scope
        from iceberg_maint.removal.table_ownership import delete_unused

        if self._is_first:
            delete_unused(self._scratch, self._clock.now_ms())
            self._is_first = False
        catalog = _metadata_catalog(self._catalogs, table.catalog)
        context = CleanupContext(
            others=self._location_owners.others,
            store=lambda state: open_store(catalog.io_of(state.table), state.location),
            reachability=lambda state: MetadataWalk(catalog, state.table, state.uuid),
            scratch=self._scratch,
            now_ms=self._clock.now_ms,
            name_of=self._ledger.leases.last_leased_name,
        )
        return OrphanRemoval(context, scope or Scope())

    @cached_property
    def _location_owners(self) -> FleetLocationOwners:
        from iceberg_maint.catalog.location_owners import FleetLocationOwners

        return FleetLocationOwners(
            {name: _metadata_catalog(self._catalogs, name) for name in self._catalogs},
            self._ledger.registry,
        )


def spark_engine(catalogs: Mapping[str, Catalog], driver: Callable[[], Any]) -> Engine:
    """An engine on the session or JVM that `driver` returns at its first use."""
    from iceberg_maint.engines.spark.engine import SparkEngine

    take_calls = catalogs.take_calls if isinstance(catalogs, ConfiguredCatalogs) else None
    is_limited = not isinstance(catalogs, ConfiguredCatalogs) or catalogs.is_limited()

    def check_writes(table: str, location: str, properties: Mapping[str, str]) -> None:
        name = TableId.parse(table)
        _metadata_catalog(catalogs, name.catalog).check_writes(name, location, properties)

    return SparkEngine(
        driver,
        lambda table: metadata_reader(catalogs, table),
        take_calls=take_calls,
        check_writes=check_writes if is_limited else None,
    )


def _spark_access(config: Config, catalogs: Mapping[str, Catalog]) -> SparkAccess:
    from iceberg_maint.engines.spark.session.settings import spark_conf

    def verifier() -> Verifier:
        from iceberg_maint.engines.spark.verify import SparkVerifier

        return SparkVerifier(lambda: session(config))

    return SparkAccess(
        session=lambda: session(config),
        conf=lambda: launched_spark_conf(config),
        engine_of=lambda given: spark_engine(catalogs, checked(given)),
        verifier=verifier,
        memory=declared_memory(config.spark.master, spark_conf(spark_settings(config)), os.cpu_count() or 1),
    )


def metadata_reader(catalogs: Mapping[str, Catalog], table: str) -> MetadataReader:
    """The reader of the table's manifests for the commit gate: the reader that measured them."""
    from iceberg_maint.catalog.manifests.entries import read_entries
    from iceberg_maint.catalog.manifests.reader import make_reader, read_manifest_list
    from iceberg_maint.core.commits.change import MetadataReader

    name = TableId.parse(table)
    io = _metadata_catalog(catalogs, name.catalog).io_of(name)
    return MetadataReader(
        lambda location: read_manifest_list(io, location),
        make_reader(io),
        lambda manifest: read_entries(io, manifest),
    )


def _metadata_catalog(catalogs: Mapping[str, Catalog], name: str) -> PyIcebergCatalog:
    from iceberg_maint.catalog.adapter import PyIcebergCatalog

    catalog = catalogs[name]
    if not isinstance(catalog, PyIcebergCatalog):
        raise TypeError(f"{type(catalog).__name__} reads no manifests.")
    return catalog
