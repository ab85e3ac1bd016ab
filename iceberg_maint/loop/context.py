"""Context: the outside systems and the policies that one process maintains tables with."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from iceberg_maint.core.decisions.applicability import RowTypes
from iceberg_maint.core.decisions.fleet_budget import FleetBudget
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.planning.spark_memory import DeclaredMemory
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.loop.fleet.catalogs import Catalogs
from iceberg_maint.loop.fleet.stored_decisions import RememberedDecisions
from iceberg_maint.ports.clock import Clock
from iceberg_maint.ports.engine import Engine, Verifier, WorkProgress
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.ports.observers import Audit, Telemetry
from iceberg_maint.ports.statement_engine import StatementEngine
from iceberg_maint.ports.storage import OrphanFiles

SessionFactory = Callable[[], Any]
"""Returns the Spark session of this process. The first call starts it."""

PolicyFor = Callable[[TableId, Mapping[str, str]], Policy]
"""The effective policy of a table with these properties."""


@dataclass(frozen=True, slots=True)
class SparkAccess:
    """The Spark of this process: its session, the settings for a session that another program builds,
    the engine on a given session, and the verifier of commits. Nothing starts before a call. `memory` is what the
    settings declare, None if they are another program's."""

    session: SessionFactory
    conf: Callable[[], Mapping[str, str]]
    engine_of: Callable[[SessionFactory], Engine]
    verifier: Callable[[], Verifier]
    memory: DeclaredMemory | None


class EngineAccess:
    """The engine of this process, created by the first call, of whatever thread: the next table may be measured by the
    engine while this one is written. `row_types` are the ways in which it reads rows. `measures`: whether a measurement may
    start it. `elsewhere` are the engines that run statements, by name."""

    def __init__(
        self,
        make: Callable[[], Engine],
        spark: SparkAccess,
        row_types: RowTypes,
        elsewhere: Mapping[str, StatementEngine] = MappingProxyType({}),
        *,
        measures: bool = True,
    ) -> None:
        self.spark, self.row_types, self.measures, self.elsewhere = spark, row_types, measures, elsewhere
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

    def on_session(self, session: SessionFactory) -> EngineAccess:
        """Returns the engine on another program's session."""
        spark = replace(self.spark, memory=None)
        return EngineAccess(
            lambda: spark.engine_of(session), spark, self.row_types, self.elsewhere, measures=self.measures
        )

    def for_writes_only(self) -> EngineAccess:
        """Returns the engine, which no measurement may start."""
        return EngineAccess(self, self.spark, self.row_types, self.elsewhere, measures=False)

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
        """Cancels the work of the engine, if there is one, and running statements."""
        for engine in self.elsewhere.values():
            engine.cancel()
        if self._engine is not None:
            self._engine.cancel()

    def abandon_calls(self) -> None:
        """Forgets the interrupted calls of this thread to the engine, if there is one."""
        if self._engine is not None:
            self._engine.abandon_calls()


End = Callable[[str], object]
"""Ends the process, after it has said why. It returns in tests only."""


@dataclass(frozen=True, slots=True)
class Policies:
    """The effective policies of tables, and the budget of the fleet. `decisions` are those that this process has made by
    them from stored health."""

    of_table: PolicyFor
    fleet_budget: FleetBudget | None
    decisions: RememberedDecisions = field(default_factory=RememberedDecisions)

    def of(self, state: TableState) -> Policy:
        """Returns the effective policy of a pinned table."""
        return self.of_table(state.table, state.properties)


@dataclass(frozen=True, slots=True)
class Storage:
    """The stores of tables. `orphan_files` creates the orphan scan of a table. `now_ms` reads the clock of a table's
    store, None if the table has no store."""

    orphan_files: Callable[[TableId], OrphanFiles]
    now_ms: Callable[[TableState], int | None]


@dataclass(frozen=True, slots=True)
class Observers:
    """What receives the numbers and the records of operations."""

    telemetry: Telemetry
    audit: Audit


@dataclass(frozen=True, slots=True)
class OwnProcess:
    """This process. `masked` and `redacted_error` remove its secrets from what is logged, raised and stored.
    `cpu_seconds` are those of its tree, None if they are not measured. `scratch_folders` are those of this machine that
    Spark uses. `end` ends a process that does nothing but maintain tables, if a call in it can be ended in no other way;
    None in other processes."""

    masked: Callable[[str], str]
    redacted_error: Callable[[Exception], Exception]
    cpu_seconds: Callable[[], float | None]
    scratch_folders: tuple[str, ...]
    end: End | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """The ports and the policies of one process. Building a context connects to nothing."""

    catalogs: Catalogs
    ledger: Ledger
    clock: Clock
    policies: Policies
    engine: EngineAccess
    storage: Storage
    observers: Observers
    process: OwnProcess

    def within(self, seconds: float) -> Context:
        """Returns the context of a caller that has so many seconds for a call of a catalog, or for a reading of its tables."""
        return replace(self, catalogs=self.catalogs.within(seconds))

    def of_one_run(self) -> Context:
        """Returns the context of a run on one table, with a memory of that table."""
        return replace(self, catalogs=self.catalogs.of_one_run())

    def ended_by(self, end: End) -> Context:
        """Returns the context of a process that does nothing but maintain tables."""
        return replace(self, process=replace(self.process, end=end))

    def on_session(self, session: SessionFactory) -> Context:
        """Returns the context with an engine on another program's session."""
        return replace(self, engine=self.engine.on_session(session))
