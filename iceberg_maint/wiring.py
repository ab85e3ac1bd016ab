"""Wiring: builds the real adapters from the configuration, each at its first use."""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iceberg_maint.config import Config, EffectivePolicy, load_config, redact
from iceberg_maint.core.commits.change import MetadataReader
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.removal.clock_agreement import Uptime
from iceberg_maint.errors import UnknownTableError
from iceberg_maint.ports.catalog import Catalog
from iceberg_maint.ports.clock import Clock
from iceberg_maint.ports.engine import Engine, Verifier
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.ports.storage import OrphanFiles
from iceberg_maint.runner.assess import PolicyOf, Tools

if TYPE_CHECKING:
    from iceberg_maint.catalog.adapter import PyIcebergCatalog
    from iceberg_maint.catalog.location_claims import FleetClaims
    from iceberg_maint.orphans.orphan_pass import OrphanPass, Scope
    from iceberg_maint.spark.session.settings import SparkSettings

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

SessionFactory = Callable[[], Any]
"""Returns the process's Spark session; the first call starts it."""


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


class App:
    """All adapters of one process. No adapter connects or starts before its first use.

    Tests may pass catalogs, ledger, clock, engine and orphan passes. The defaults are the real ones.
    """

    def __init__(
        self,
        config: Config,
        *,
        catalogs: Mapping[str, Catalog] | None = None,
        ledger: Ledger | None = None,
        clock: Clock | None = None,
        engine: Engine | None = None,
        orphans: Callable[[TableId], OrphanFiles] | None = None,
    ) -> None:
        self.config = config
        self.clock: Clock = clock or SystemClock()
        if catalogs is not None:
            self.catalogs = catalogs
        if ledger is not None:
            self.ledger = ledger
        self._engine = engine
        self._orphans = orphans or self.orphan_files

    @cached_property
    def catalogs(self) -> Mapping[str, Catalog]:
        """The configured catalogs by name."""
        from iceberg_maint.catalog.adapter import PyIcebergCatalog

        return {
            name: PyIcebergCatalog(name, catalog.pyiceberg_properties())
            for name, catalog in self.config.catalogs.items()
        }

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger."""
        from iceberg_maint.ledger.ledger import SqlLedger

        return SqlLedger(self.config.ledger_url)

    def tables(self) -> tuple[TableId, ...]:
        """Every table of every catalog, sorted."""
        return tuple(sorted(t for catalog in self.catalogs.values() for t in catalog.tables()))

    def parse(self, name: str) -> TableId:
        """The table of this name. The name may omit the catalog if only one is configured.

        Raises UnknownTableError ICM-126 for a name that no configured catalog can have.
        """
        only = self.config.only_catalog
        parts = name.split(".")
        if only is not None and (parts[0] != only or len(parts) == 2):
            parts = [only, *parts]
        if parts[0] not in self.catalogs or len(parts) < 3 or not all(parts):
            known = ", ".join(sorted(self.catalogs))
            raise UnknownTableError(
                "ICM-126",
                f"'{name}' is no table name of catalog {known}.",
                "write catalog.namespace.table; see 'iceberg-maint tables'.",
            )
        return TableId(parts[0], tuple(parts[1:-1]), parts[-1])

    def find(self, name: str) -> TableId:
        """The table of this name. Raises UnknownTableError ICM-126 with similar names if the catalog does not
        list it.
        """
        table = self.parse(name)
        listed = self.catalogs[table.catalog].tables()
        if table in listed:
            return table
        near = difflib.get_close_matches(str(table), map(str, listed), n=3, cutoff=0.6)
        hint = f"did you mean {', '.join(near)}?" if near else "list the tables with 'iceberg-maint tables'."
        raise UnknownTableError("ICM-126", f"catalog {table.catalog} has no table '{table}'.", hint)

    def effective_policy(
        self, table: TableId, properties: Mapping[str, str], overrides: Mapping[str, str] | None = None
    ) -> EffectivePolicy:
        """The table's policy with the source of every value."""
        return self.config.policy_for(table, properties, overrides)

    def policy_of(self, overrides: Mapping[str, str] | None = None) -> PolicyOf:
        """The effective policy as a function of the table's pinned state."""

        def policy(state: TableState) -> Any:
            return self.config.policy_for(state.table, state.properties, overrides).policy

        return policy

    def tools(self, table: TableId) -> Tools:
        """The ports that `assess` and `maintain` use for this table."""
        catalog, secrets = self.catalogs[table.catalog], self.config.secrets
        return Tools(
            catalog,
            self.ledger,
            self.clock,
            self.engine,
            lambda: self._orphans(table),
            lambda text: redact(text, secrets),
            self.store_now_ms,
        )

    def store_now_ms(self, state: TableState) -> int | None:
        """The clock of a table's store; None for a catalog without files."""
        from iceberg_maint.catalog.adapter import PyIcebergCatalog
        from iceberg_maint.catalog.file_store import open_store

        catalog = self.catalogs[state.table.catalog]
        if not isinstance(catalog, PyIcebergCatalog):
            return None
        return open_store(catalog.io_of(state.table), state.location).now_ms(state.location)

    def orphan_files(self, table: TableId, scope: Scope | None = None) -> OrphanPass:
        """The orphan pass of one table. It compares the table with all tables of all catalogs."""
        from iceberg_maint.catalog.file_store import open_store
        from iceberg_maint.catalog.reachable_files import MetadataWalk
        from iceberg_maint.orphans.orphan_pass import OrphanPass, Scope, Surroundings

        catalog = self._metadata_catalog(table.catalog)
        around = Surroundings(
            others=self._claims.others,
            store=lambda state: open_store(catalog.io_of(state.table), state.location),
            reachability=lambda state: MetadataWalk(catalog, state.table, state.uuid),
            scratch=self.config.home / "orphans",
            now_ms=self.clock.now_ms,
        )
        return OrphanPass(around, scope or Scope())

    @cached_property
    def _claims(self) -> FleetClaims:
        from iceberg_maint.catalog.location_claims import FleetClaims

        return FleetClaims({name: self._metadata_catalog(name) for name in self.catalogs})

    def spark_settings(self) -> SparkSettings:
        """The configured settings of the session, checked. Starts nothing.

        Raises RefusedError ICM-105 for an unsafe setting. `session` adds the jars.
        """
        from iceberg_maint.spark.session.settings import SparkSettings, catalog_conf, spark_conf

        settings = SparkSettings(
            master=self.config.spark.master,
            jars=(),
            catalogs={
                name: catalog_conf(name, c.type, c.uri, c.warehouse, c.properties)
                for name, c in self.config.catalogs.items()
            },
            conf=self.config.spark.conf,
            local_dir=str(self.config.home / "spark"),
        )
        spark_conf(settings)
        return settings

    def ready_spark_settings(self) -> SparkSettings:
        """The settings with the locked jars and the jars of the configuration.

        Fetches missing locked jars. Sets JAVA_HOME of this process to a supported Java.

        Raises RefusedError ICM-103 for a missing Java or a jar that is missing or fails its checksum.
        """
        from iceberg_maint.spark.session.declared_jars import check_declared
        from iceberg_maint.spark.session.jars import environment_fetch, load_lock, resolve
        from iceberg_maint.spark.session.java import find_java, quiet_home

        settings = self.spark_settings()
        declared = self.config.spark.jars
        for jar in declared:
            check_declared(jar.path, jar.sha256)
        java = find_java(os.environ, shim_dir=self.config.cache / "java")
        os.environ["JAVA_HOME"] = str(quiet_home(java, self.config.cache / "java"))
        jars = resolve(load_lock(), self.config.cache / "jars", environment_fetch(java, os.environ))
        return replace(settings, jars=tuple(map(str, [*jars, *(jar.path for jar in declared)])))

    def launched_spark_conf(self) -> dict[str, str]:
        """All settings of the session, for Dagster's Spark resource, which builds the session.

        Starts this process's JVM first, so that no secret is among its arguments. Raises what
        `ready_spark_settings` raises.
        """
        from iceberg_maint.spark.session.session import launch
        from iceberg_maint.spark.session.settings import spark_conf

        conf = spark_conf(self.ready_spark_settings())
        launch(conf, self.config.secrets)
        return conf

    def session(self) -> Any:
        """This process's Spark session. Starts it if there is none."""
        from iceberg_maint.spark.session.session import build_session

        return build_session(self.ready_spark_settings(), self.config.secrets)

    def spark_versions(self) -> Mapping[str, str]:
        """Starts Spark and returns its versions. Raises RefusedError ICM-103, ICM-105."""
        from iceberg_maint.spark.session.session import versions

        return versions(self.session())

    def engine(self) -> Engine:
        """The engine. Spark starts at its first write."""
        if self._engine is None:
            self._engine = self.engine_of(self.session)
        return self._engine

    def engine_of(self, session: SessionFactory) -> Engine:
        """An engine on the session of `session`, which starts at its first use."""
        from iceberg_maint.spark.engine import SparkEngine

        return SparkEngine(session, self.metadata_reader)

    def verifier(self) -> Verifier:
        """The verifier of commits. Spark starts at its first read."""
        from iceberg_maint.spark.verify import SparkVerifier

        return SparkVerifier(self.session)

    def metadata_reader(self, table: str) -> MetadataReader:
        """The reader of the table's manifests for the commit gate: the reader that measured them."""
        from iceberg_maint.catalog.manifests.entries import read_entries
        from iceberg_maint.catalog.manifests.reader import make_reader, read_manifest_list

        name = TableId.parse(table)
        io = self._metadata_catalog(name.catalog).io_of(name)
        return MetadataReader(
            lambda location: read_manifest_list(io, location),
            make_reader(io),
            lambda manifest: read_entries(io, manifest),
        )

    def _metadata_catalog(self, name: str) -> PyIcebergCatalog:
        from iceberg_maint.catalog.adapter import PyIcebergCatalog

        catalog = self.catalogs[name]
        if not isinstance(catalog, PyIcebergCatalog):
            raise TypeError(f"{type(catalog).__name__} reads no manifests.")
        return catalog

    @property
    def running_engine(self) -> Engine | None:
        """The engine, if it was built."""
        return self._engine


def build(config: Config) -> App:
    """Builds the application with real adapters. Raises the errors of unsafe settings. Opens no connection."""
    app = App(config)
    app.spark_settings()
    return app


def load(path: Path | None) -> App:
    """Builds the application from a configuration file and this process's environment."""
    return build(load_config(path, os.environ))
