"""Runtime: the outside systems and the policies that one process maintains tables with."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from iceberg_maint.core.decisions.applicability import SPARK_4, RowTypes
from iceberg_maint.core.decisions.fleet_budget import FleetBudget
from iceberg_maint.core.model.ids import PartitionKey, TableId
from iceberg_maint.core.model.table_state import LiveFile, TableState
from iceberg_maint.core.planning.spark_memory import DeclaredMemory
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.errors import UnknownTableError
from iceberg_maint.loop.caches import RememberedDecisions, RememberedSpeed, TableMemory
from iceberg_maint.loop.time_limits import End, late_catalog, late_table, late_warehouse
from iceberg_maint.machine.bounded_calls import CallLimits, LateError, Threads
from iceberg_maint.ports.catalog import Catalog
from iceberg_maint.ports.clock import Clock
from iceberg_maint.ports.engine import Engine, Verifier, WorkProgress
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.ports.observers import NO_AUDIT, NO_TELEMETRY, Audit, Telemetry
from iceberg_maint.ports.storage import OrphanFiles

T = TypeVar("T")

SessionFactory = Callable[[], Any]
"""Returns the Spark session of this process. The first call starts it."""

PolicyFor = Callable[[TableId, Mapping[str, str]], Policy]
"""The effective policy of a table with these properties."""


class LazyEngine:
    """An engine that is created by the first call, of whatever thread: the next table may be measured by the engine
    while this one is written."""

    def __init__(self, make: Callable[[], Engine]) -> None:
        self._make = make
        self._engine: Engine | None = None
        self._batches = 0
        self._lock = threading.Lock()

    def __call__(self) -> Engine:
        """Returns the engine, the same one at every call."""
        with self._lock:
            if self._engine is None:
                self._engine = self._make()
            return self._engine

    def count_batch(self) -> int:
        """Counts a batch, and returns how many the engine ran before it."""
        self._batches += 1
        return self._batches - 1

    @property
    def batches(self) -> int:
        """How many batches the engine ran."""
        return self._batches

    def progress(self) -> WorkProgress | None:
        """Returns the progress of the engine's current batch. None without an engine."""
        return None if self._engine is None else self._engine.progress()

    def cancel(self) -> None:
        """Cancels the work of the engine, if there is one."""
        if self._engine is not None:
            self._engine.cancel()

    def abandon_calls(self) -> None:
        """Forgets the interrupted calls of this thread to the engine, if there is one."""
        if self._engine is not None:
            self._engine.abandon_calls()


def no_spark(*_arguments: object) -> Any:
    """Stands in where a process has no Spark. Raises RuntimeError."""
    raise RuntimeError("this runtime has no Spark")


def no_orphan_pass(_table: TableId) -> OrphanFiles:
    """Stands in where a process removes no files. Raises RuntimeError."""
    raise RuntimeError("this runtime has no orphan pass")


def no_store_clock(_state: TableState) -> int | None:
    """Stands in where tables have no store."""
    return None


def no_catalog_calls() -> int:
    """Stands in where no catalog counts its calls."""
    return 0


def no_cpu_seconds() -> float | None:
    """Stands in where CPU seconds are not measured."""
    return None


def no_secrets(error: Exception) -> Exception:
    """Stands in where a process has no secrets. Returns the error itself."""
    return error


@dataclass(frozen=True, slots=True)
class SparkAccess:
    """The Spark of this process: its session, the settings for a session that another program builds,
    the engine on a given session, and the verifier of commits. Nothing starts before a call. `memory` is what the
    settings declare, None if they are another program's."""

    session: SessionFactory = no_spark
    conf: Callable[[], Mapping[str, str]] = no_spark
    engine_of: Callable[[SessionFactory], Engine] = no_spark
    verifier: Callable[[], Verifier] = no_spark
    memory: DeclaredMemory | None = None


@dataclass(frozen=True, slots=True)
class Runtime:
    """The ports and the policies of one process. Building a runtime connects to nothing.

    `engine` creates the engine at its first call. `orphan_files` creates the orphan pass of a table.
    `store_now_ms` reads the clock of a table's store, None if the table has no store. `row_types` are the ways in
    which the engine reads rows. `measures_by_engine`: whether a measurement may start the engine. `catalog_calls` counts the calls of this process to all catalogs. `masked` and
    `redacted_error` remove secrets from what is logged, raised and stored. `memory` is of the table of one run; None
    outside of runs. `threads` make the calls that may hang. `looks_within` is the time in seconds that a caller has for
    calls of catalogs, None for their own limits. `end_process` ends a process that does nothing but maintain tables, if a
    call in it can be ended in no other way; None in other processes. `scratch_folders` are those of this machine that Spark
    uses. `decisions` are those that this process has made from stored health,
    `speed` is that of the fleet, which it has measured for judgements.
    """

    catalogs: Mapping[str, Catalog]
    ledger: Ledger
    clock: Clock
    policy_for: PolicyFor
    engine: LazyEngine
    orphan_files: Callable[[TableId], OrphanFiles] = no_orphan_pass
    store_now_ms: Callable[[TableState], int | None] = no_store_clock
    row_types: RowTypes = SPARK_4
    masked: Callable[[str], str] = str
    redacted_error: Callable[[Exception], Exception] = no_secrets
    spark: SparkAccess = SparkAccess()
    telemetry: Telemetry = NO_TELEMETRY
    audit: Audit = NO_AUDIT
    fleet_budget: FleetBudget | None = None
    catalog_calls: Callable[[], int] = no_catalog_calls
    memory: TableMemory | None = None
    measures_by_engine: bool = True
    cpu_seconds: Callable[[], float | None] = no_cpu_seconds
    scratch_folders: tuple[str, ...] = ()
    threads: Threads = field(default_factory=Threads)
    looks_within: float | None = None
    end_process: End | None = None
    decisions: RememberedDecisions = field(default_factory=RememberedDecisions)
    speed: RememberedSpeed = field(default_factory=RememberedSpeed)

    def within(self, seconds: float) -> Runtime:
        """Returns the runtime of a caller that has so many seconds for a call of a catalog, or for a look at its tables."""
        return replace(self, looks_within=seconds)

    def limits_of(self, catalog: str) -> CallLimits | None:
        """Returns the limits of a pass over this catalog; None for one in memory."""
        looks = self.catalogs[catalog].looks
        return None if looks is None else looks.within(self.looks_within)

    def in_time(self, table: TableId, work: Callable[[], T]) -> T:
        """Returns what `work` reads of the table. A signal or the deadline of the table interrupts the wait for it. Raises
        what it raises, IcebergMaintError ICM-179 if that takes longer than the `look_seconds` of the catalog."""
        if table.catalog not in self.catalogs:
            return work()
        return self._in_time(table.catalog, work, lambda _name, *late: late_table(table, *late))

    def list_in_time(self, catalog: str, work: Callable[[], T]) -> T:
        """As `in_time`, for what `work` reads of the list of tables of a catalog."""
        return self._in_time(catalog, work, late_catalog)

    def probe_in_time(self, catalog: str, work: Callable[[], T]) -> T:
        """As `in_time`, for a probe of the warehouse of a catalog."""
        return self._in_time(catalog, work, late_warehouse)

    def _in_time(
        self, catalog: str, work: Callable[[], T], error: Callable[[str, LateError, float | None], Exception]
    ) -> T:
        limits = self.limits_of(catalog)
        if limits is None:
            return work()
        try:
            return self.threads.call(work, limits.call_seconds)
        except LateError as late:
            raise error(catalog, late, self.looks_within) from None

    def interruptible(self, table: TableId, work: Callable[[], T]) -> T:
        """As `in_time`, without a time: for reads of many files."""
        if self.catalog_of(table).looks is None:
            return work()
        return self.threads.call(work, None)

    def of_one_run(self) -> Runtime:
        """Returns the runtime of a run on one table, with a memory of that table."""
        return replace(self, memory=TableMemory())

    def pin(self, table: TableId) -> TableState:
        """Returns the current state of the table. Raises what the catalog raises."""
        catalog = self.catalog_of(table)
        if self.memory is None:
            return self.in_time(table, lambda: catalog.pin(table))
        return self.memory.pin(lambda known: self.in_time(table, lambda: catalog.pin(table, known)))

    def live_files(self, state: TableState, partitions: Collection[PartitionKey]) -> tuple[LiveFile, ...]:
        """Returns the live files of these partitions. Raises what the catalog raises."""
        catalog = self.catalog_of(state.table)

        def read() -> tuple[LiveFile, ...]:
            return self.interruptible(state.table, lambda: catalog.live_files(state, partitions))

        return read() if self.memory is None else self.memory.live_files(state, partitions, read)

    def on_session(self, session: SessionFactory) -> Runtime:
        """Returns the runtime with an engine on another program's session."""
        engine = LazyEngine(lambda: self.spark.engine_of(session))
        return replace(self, engine=engine, spark=replace(self.spark, memory=None))

    def catalog_of(self, table: TableId) -> Catalog:
        """Returns the table's catalog. Raises UnknownTableError for one that the configuration lacks."""
        try:
            return self.catalogs[table.catalog]
        except KeyError:
            raise UnknownTableError(
                "ICM-126",
                f"{table}: the configuration has no catalog '{table.catalog}'.",
                f"name one of {', '.join(sorted(self.catalogs))}.",
            ) from None

    def policy_of(self, state: TableState) -> Policy:
        """Returns the effective policy of a pinned table."""
        return self.policy_for(state.table, state.properties)

    def tables(self) -> tuple[TableId, ...]:
        """Returns every table of every catalog, sorted."""
        return tuple(sorted(t for catalog in self.catalogs.values() for t in catalog.tables()))

    def parse(self, name: str) -> TableId:
        """Returns the table of this name. The name may omit the catalog if only one is configured.

        Raises UnknownTableError ICM-126 for a name that no configured catalog can have.
        """
        known = sorted(self.catalogs)
        parts = name.split(".")
        if len(known) == 1 and (parts[0] != known[0] or len(parts) == 2):
            parts = [*known, *parts]
        if parts[0] not in known or len(parts) < 3 or not all(parts):
            raise UnknownTableError(
                "ICM-126",
                f"'{name}' is no table name of catalog {', '.join(known)}.",
                "write catalog.namespace.table; see 'iceberg-maint tables'.",
            )
        return TableId(parts[0], tuple(parts[1:-1]), parts[-1])

    def find(self, name: str) -> TableId:
        """Returns the table of this name. Raises UnknownTableError ICM-126 with similar names if the catalog
        does not list it.
        """
        table = self.parse(name)
        listed = self.catalogs[table.catalog].tables()
        if table in listed:
            return table
        # A name with a dot within a part is split into other parts. The table is found, and refused by its pin.
        for other in listed:
            if str(other) == str(table):
                return other
        # Without the catalog: all names share it.
        names = {str(t).removeprefix(f"{t.catalog}."): str(t) for t in listed}
        typed = str(table).removeprefix(f"{table.catalog}.")
        near = [names[n] for n in difflib.get_close_matches(typed, names, n=3, cutoff=0.7)]
        hint = f"did you mean {', '.join(near)}?" if near else "list the tables with 'iceberg-maint tables'."
        raise UnknownTableError("ICM-126", f"catalog {table.catalog} has no table '{table}'.", hint)
