"""The loop's world with a history to expire and manifests to regroup."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from iceberg_maint.core.model.ids import WHOLE_TABLE, Operation
from iceberg_maint.core.model.table_state import FENCE_PROPERTY, TOKEN_PROPERTY, Manifest, Ref, TableState
from iceberg_maint.core.outcomes.outcome import CommitResult, CommitStatus
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import RewriteManifests
from iceberg_maint.core.policy.housekeeping import DAY_SECONDS, ExpireSnapshotsPolicy, RewriteManifestsPolicy
from iceberg_maint.loop.context import Context
from iceberg_maint.ports.engine import CommitContext, Written
from iceberg_maint_tests.support.context import context_with
from iceberg_maint_tests.support.fakes.catalog import FakeTable
from iceberg_maint_tests.support.fakes.orphan_scan import FakeOrphanFiles
from iceberg_maint_tests.support.loop.world import POLICY, LoopEngine, Process, World, at_clock, mortal_ledger

EXPIRE, REGROUP = Operation.EXPIRE_SNAPSHOTS, Operation.REWRITE_MANIFESTS
HOUSEKEEPING_POLICY = replace(
    POLICY,
    expire_snapshots=ExpireSnapshotsPolicy(
        max_snapshot_age_seconds=DAY_SECONDS, min_snapshots_to_keep=1, every_seconds=0
    ),
    rewrite_manifests=RewriteManifestsPolicy(max_manifests=3),
)


class HousekeepingWorld(World):
    """One partition; five snapshots a week apart, the newest a second old, and six manifests."""

    def __init__(self) -> None:
        super().__init__("a", HOUSEKEEPING_POLICY)
        self.orphans = FakeOrphanFiles()
        self.store_clock = self.clock
        for _ in range(4):
            self.clock.sleep(7 * DAY_SECONDS)
            self.append("p=a", 1)
        self.clock.sleep(1)
        listed = tuple(Manifest(f"m{n}", 100, False, 0, n, n, n, 1, 0, 0, 10, 0) for n in range(6))
        state = self.now.state
        assert state.snapshot is not None
        refs = (Ref("main", "branch", state.snapshot.snapshot_id), Ref("old", "tag", self.ids()[0], 1000))
        self.change(manifests=listed, refs=refs)

    def ids(self) -> list[int]:
        return [s.snapshot_id for s in self.now.state.snapshots]

    def change(self, **fields: Any) -> None:
        """A commit to the metadata only."""
        state = self.now.state
        number = int(state.metadata_location.rpartition("v")[2]) + 1000
        self.now = FakeTable(
            replace(state, metadata_location=f"mem://v{number}", **fields), self.now.live_files
        )
        self.catalog.put(self.now)

    def left_open(self, operation: Operation) -> tuple[int, int]:
        """Open attempts and open batches of one operation."""
        uuid = self.now.state.uuid
        return len(self.ledger.work.open_attempts(uuid)), len(self.ledger.work.open_batches(uuid, operation))

    def past(self, operation: Operation) -> Any:
        found = self.ledger.health.history(self.now.state.uuid, str(self.now.state.table), operation)
        return found.of(WHOLE_TABLE)

    def context(self, process: Process) -> Context:
        engine = HousekeepingEngine(self, process)
        return context_with(
            catalogs={self.now.state.table.catalog: self.catalog},
            ledger=mortal_ledger(at_clock(self.ledger, self.ledger_clock), process),
            clock=self.clock,
            policy_for=lambda _table, _properties: self.policy,
            engine=lambda: engine,
            orphan_files=lambda _table: self.orphans,
            store_now_ms=lambda _state: self.store_clock.now_ms(),
        )


class HousekeepingEngine(LoopEngine):
    """Commits housekeeping as the real one does: retention or manifests asked for, then ATTEMPT, then
    the lease, then the swap."""

    world: HousekeepingWorld

    def commit(self, batch: Batch, written: Written, context: CommitContext) -> CommitResult:
        world = self.world
        world.before_commit(batch)
        state = world.now.state
        assert state.snapshot is not None
        base = state.snapshot.snapshot_id
        if batch.operation == EXPIRE:
            allowed = context.retention(state.metadata_location)
            assert allowed is not None
            assert set(batch.work.snapshots) <= set(allowed.expire)
        context.record_try(base, state.metadata_location)
        assert context.lease_is_held()
        self.process.step("before:swap")
        self._swap(batch, context, state)
        self.process.step("after:swap")
        head = world.now.state.snapshot
        assert head is not None
        return CommitResult(CommitStatus.COMMITTED, snapshot_id=head.snapshot_id, base_snapshot_id=base)

    def _swap(self, batch: Batch, context: CommitContext, state: TableState) -> None:
        world = self.world
        world.tokens.append(context.token)
        if batch.operation == EXPIRE:
            world.change(
                snapshots=tuple(s for s in state.snapshots if s.snapshot_id not in batch.work.snapshots),
                refs=tuple(r for r in state.refs if r.name not in batch.work.refs),
            )
            return
        replaced = batch.work.manifests if isinstance(batch.work, RewriteManifests) else ()
        assert set(replaced) <= {m.path for m in state.manifests}
        summary = {
            TOKEN_PROPERTY: context.token,
            FENCE_PROPERTY: str(context.fence),
            "manifests-created": "1",
        }
        snapshot = world.commit((), (), summary)
        kept = tuple(m for m in state.manifests if m.path not in replaced)
        made = Manifest(
            f"new-{context.token}", 600, False, 0, *[snapshot.sequence_number] * 3, 0, 6, 0, 0, 60
        )
        refs = tuple(
            replace(r, snapshot_id=snapshot.snapshot_id) if r.name == "main" else r for r in state.refs
        )
        world.change(manifests=(*kept, made), refs=refs)
