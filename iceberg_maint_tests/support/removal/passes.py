"""Orphan scans through the whole loop: the real ledger, catalog and files, a store whose clock is set."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import update

from iceberg_maint.catalog.location_owners import FleetLocationOwners
from iceberg_maint.catalog.reachable_files import MetadataWalk
from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.outcomes.outcome import OperationOutcome
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.core.policy.housekeeping import RemoveOrphanFilesPolicy
from iceberg_maint.ledger.ledger import sql_ledger
from iceberg_maint.ledger.schema import lease as lease_table
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.maintain import Request, maintain
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.removal.remove_orphans import CleanupContext, OrphanRemoval, Scope
from iceberg_maint.wiring.adapters import SystemClock
from iceberg_maint_tests.support.catalog.claim_memory import ClaimMemory
from iceberg_maint_tests.support.context import context_with
from iceberg_maint_tests.support.loop.world import at_clock
from iceberg_maint_tests.support.removal.layouts import Lake, ShiftedStore

TABLE = TableId.parse("lake.db.t")
OPERATION = Operation.REMOVE_ORPHAN_FILES
DAILY = RemoveOrphanFilesPolicy(every_seconds=86_400)
_numbers = itertools.count(1)


class StoreClock(SystemClock):
    """The machine's clock, as far ahead as the store's; waits for nothing."""

    def __init__(self, store: ShiftedStore, seconds: Callable[[], float] = time.monotonic) -> None:
        self._store, self._seconds = store, seconds

    def monotonic_seconds(self) -> float:
        return self._seconds()

    def now_ms(self) -> int:
        return self._store.local_now_ms()

    def uptime(self) -> None:
        return None

    def sleep(self, seconds: float) -> None:
        pass


class NoEngine:
    """Nothing of an orphan scan needs Spark."""

    def versions(self) -> dict[str, str]:
        return {}


@dataclass
class Passes:
    """Runs passes over the lake's table. `scope` is what the next one is to do."""

    lake: Lake
    store: ShiftedStore = field(default_factory=ShiftedStore)
    policy: Policy = field(default_factory=lambda: Policy(remove_orphan_files=DAILY))
    scope: Scope = field(default_factory=Scope)
    around: dict[str, Any] = field(default_factory=dict)
    ledger_clock: Any = None
    seconds: Callable[[], float] = time.monotonic

    @property
    def ledger(self) -> Ledger:
        return sql_ledger(f"sqlite:///{self.lake.folder}/ledger.db")

    def remove_orphans(self) -> OrphanRemoval:
        catalog = self.lake.catalog
        around: dict[str, Any] = {
            "others": FleetLocationOwners({"lake": catalog}, ClaimMemory()).others,
            "store": lambda _state: self.store,
            "reachability": lambda state: MetadataWalk(catalog, state.table, state.uuid),
            "scratch": Path(self.lake.folder) / "scratch",
            "now_ms": self.store.local_now_ms,
        }
        return OrphanRemoval(CleanupContext(**(around | self.around)), self.scope)

    def context(self) -> Context:
        return context_with(
            catalogs={TABLE.catalog: self.lake.catalog},
            ledger=at_clock(self.ledger, self.ledger_clock or StoreClock(self.store)),
            clock=StoreClock(self.store, self.seconds),
            policy_for=lambda _table, _properties: self.policy,
            engine=NoEngine,
            orphan_files=lambda _table: self.remove_orphans(),
        )

    def run(self, *, force: bool = False) -> OperationOutcome:
        request = Request(f"run-{os.getpid()}-{next(_numbers)}", operations=(OPERATION,), force=force)
        [outcome] = maintain(TABLE, request, self.context())
        return outcome

    def expire_leases(self) -> None:
        """The time a dead process's lease takes to run out has passed."""
        uuid = self.lake.catalog.pin(TABLE).uuid
        with self.ledger.work._database.write(uuid) as conn:
            conn.execute(update(lease_table).values(expires_ms=0))
