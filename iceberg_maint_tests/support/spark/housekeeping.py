"""Housekeeping of real tables: the whole loop on a ledger in memory and a clock that is set."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from iceberg_maint.catalog.location_owners import FleetLocationOwners
from iceberg_maint.catalog.reachable_files import MetadataWalk
from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.outcomes.outcome import CommitResult, OperationOutcome
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.core.policy.housekeeping import (
    DAY_SECONDS,
    ExpireSnapshotsPolicy,
    RemoveOrphanFilesPolicy,
)
from iceberg_maint.core.policy.runs import RetryPolicy
from iceberg_maint.engines.spark.engine import SparkEngine
from iceberg_maint.loop.assess import assess
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.maintain import Request, maintain
from iceberg_maint.loop.plan_batches import make_plans
from iceberg_maint.ports.engine import CommitContext, Written
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.removal.remove_orphans import CleanupContext, OrphanRemoval
from iceberg_maint_tests.support.catalog.claim_memory import ClaimMemory
from iceberg_maint_tests.support.context import context_with
from iceberg_maint_tests.support.fakes.ledger import memory_ledger
from iceberg_maint_tests.support.loop.world import SetClock, at_clock
from iceberg_maint_tests.support.removal.layouts import ShiftedStore
from iceberg_maint_tests.support.spark.workshop import Workshop

DAY_MS = DAY_SECONDS * 1000
KEEP_ONE = Policy(
    expire_snapshots=ExpireSnapshotsPolicy(max_snapshot_age_seconds=0, min_snapshots_to_keep=1),
    remove_orphan_files=RemoveOrphanFilesPolicy(
        every_seconds=0,
        older_than_seconds=DAY_SECONDS,
        delete_after_seconds=DAY_SECONDS,
        max_orphan_ratio=1.0,
    ),
    retry=RetryPolicy(backoff_seconds=0),
)


class Interposed:
    """The real engine; `before` and `after` run around each of its commits."""

    def __init__(
        self, engine: SparkEngine, before: Callable[[Batch], None], after: Callable[[Batch], None]
    ) -> None:
        self._engine = engine
        self._before, self._after = before, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def commit(self, batch: Batch, written: Written, context: CommitContext) -> CommitResult:
        self._before(batch)
        result = self._engine.commit(batch, written, context)
        self._after(batch)
        return result


@dataclass
class Keeper:
    """Keeps the tables of one workshop; time is the machine's own, `days` ahead, and the ledger's is
    the same unless it has a `ledger_clock`. Files are looked through with the help of a folder `scratch`."""

    workshop: Workshop
    policy: Policy = KEEP_ONE
    ledger: Ledger = field(default_factory=memory_ledger)
    before_commit: Callable[[Batch], None] = lambda _batch: None
    after_commit: Callable[[Batch], None] = lambda _batch: None
    runs: Any = field(default_factory=itertools.count)
    scratch: Path = field(default_factory=lambda: Path(tempfile.mkdtemp()))
    ledger_clock: Any = None
    store_now_ms: Callable[[TableState], int | None] = lambda _state: None

    def run(self, name: str, *operations: Operation, days: float = 0, **request: Any) -> OperationOutcome:
        """Runs one operation."""
        outcomes = maintain(
            TableId.parse(name),
            Request(f"run-{next(self.runs)}", operations=operations, **request),
            self.context(name, days),
        )
        return outcomes[-1]

    def batch(self, name: str, operation: Operation, days: float = 0) -> Batch:
        """The one batch that is due."""
        context = self.context(name, days)
        seen = assess(TableId.parse(name), context, (operation,))
        ((batch,),) = (plan.batches for plan in make_plans(seen, context))
        return batch

    def state(self, name: str) -> TableState:
        return self.workshop.catalog.pin(TableId.parse(name))

    def context(self, name: str, days: float) -> Context:
        engine = Interposed(self.workshop.engine, self.before_commit, self.after_commit)
        newest = max(s.timestamp_ms for s in self.state(name).snapshots)
        clock = SetClock(newest + int(days * DAY_MS))
        return context_with(
            catalogs={TableId.parse(name).catalog: self.workshop.catalog},
            ledger=at_clock(self.ledger, self.ledger_clock or clock),
            clock=clock,
            policy_for=lambda _table, _properties: self.policy,
            engine=lambda: engine,
            orphan_files=lambda _table: self._orphan_scan(days),
            store_now_ms=self.store_now_ms,
        )

    def _orphan_scan(self, days: float) -> OrphanRemoval:
        """Over the real files, by a store whose clock is as far ahead."""
        catalog, store = self.workshop.catalog, ShiftedStore(int(days * DAY_MS))
        return OrphanRemoval(
            CleanupContext(
                others=FleetLocationOwners({"lake": catalog}, ClaimMemory()).others,
                store=lambda _state: store,
                reachability=lambda state: MetadataWalk(catalog, state.table, state.uuid),
                scratch=self.scratch,
                now_ms=store.local_now_ms,
            )
        )

    def with_policy(self, **expiry: Any) -> None:
        """Changes keys of the expiry's policy."""
        changed = replace(self.policy.expire_snapshots, **expiry)
        self.policy = replace(self.policy, expire_snapshots=changed)
