"""One table under the whole loop: real ledger in memory, catalog and engine of plain values, a clock that is
set, and a process that can die at any step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import update

from iceberg_maint.core.commits.intent import keeps_data_files
from iceberg_maint.core.commits.table_rules import check_publishes
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.model.other_writers import pending_publishes
from iceberg_maint.core.model.table_state import (
    FENCE_PROPERTY,
    TOKEN_PROPERTY,
    FileKind,
    LiveFile,
    Ref,
    Snapshot,
    TableState,
)
from iceberg_maint.core.outcomes.outcome import (
    CommitResult,
    CommitStatus,
    OperationOutcome,
    Rejection,
    combine_outcomes,
)
from iceberg_maint.core.outcomes.verification import Proof
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import RewritePositionDeleteFiles
from iceberg_maint.core.policy.data import Policy, RewriteDataFilesPolicy
from iceberg_maint.core.policy.runs import RetryPolicy, WindowsPolicy
from iceberg_maint.core.removal.clock_skew import Uptime
from iceberg_maint.ledger.schema import lease as lease_table
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.maintain import Event, Request, maintain
from iceberg_maint.loop.settle import Settled, reconcile
from iceberg_maint.ports.engine import CommitContext, Written, WrittenFile
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.ports.stored import KnownTable
from iceberg_maint_tests.support.context import context_with
from iceberg_maint_tests.support.core.values import BY_P, NOW_MS, TARGET, data, small, table_of
from iceberg_maint_tests.support.fakes.catalog import FakeCatalog, FakeTable
from iceberg_maint_tests.support.fakes.ledger import memory_ledger, with_parts

TABLE = TableId.parse("lake.db.t")
POLICY = Policy(
    rewrite_data_files=RewriteDataFilesPolicy(target_file_size_bytes=TARGET),
    windows=WindowsPolicy(max_partitions_per_batch=1),
    retry=RetryPolicy(backoff_seconds=100, quarantine_after=3, quarantine_after_crashes=3),
)


class Killed(BaseException):
    """SIGKILL: nothing of the process runs after it, so every port refuses from then on."""


@dataclass
class SetClock:
    ms: int = NOW_MS
    up: Uptime | None = None

    def now_ms(self) -> int:
        return self.ms

    def monotonic_seconds(self) -> float:
        return self.ms / 1000

    def uptime(self) -> Uptime | None:
        return self.up

    def sleep(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)


class _Registry:
    def __init__(self, registry: Any, clock: Any) -> None:
        self._registry, self._clock = registry, clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)

    def now_ms(self) -> int:
        return int(self._clock.now_ms())

    def database_ms(self) -> int:
        return int(self._registry.now_ms())


class _Health:
    def __init__(self, health: Any, registry: _Registry) -> None:
        self._health, self._registry = health, registry

    def __getattr__(self, name: str) -> Any:
        return getattr(self._health, name)

    def known_tables(self) -> tuple[KnownTable, ...]:
        """The tables with their last look by the set clock."""
        ahead_ms = self._registry.now_ms() - self._registry.database_ms()
        known = self._health.known_tables()
        return tuple(replace(k, observed_ms=k.observed_ms + ahead_ms) for k in known)


def at_clock(ledger: Ledger, clock: Any) -> Any:
    """A ledger whose database tells the time of a set clock, so that both agree. What it stores is dated by
    the machine's; `registry.database_ms` tells that."""
    registry = _Registry(ledger.registry, clock)
    return replace(ledger, registry=registry, health=_Health(ledger.health, registry))


@dataclass
class Process:
    """One run of the program. `dies` names the step at which it is killed: `before:x` or `after:x` with x
    a method of the ledger or engine, and `swap` for the compare-and-swap itself; the first `spares`
    times the step passes."""

    dies: str = ""
    spares: int = 0
    dead: bool = False
    seen: list[str] = field(default_factory=list)

    def step(self, name: str) -> None:
        if self.dead:
            raise Killed
        self.seen.append(name)
        if name == self.dies:
            if self.spares:
                self.spares -= 1
                return
            self.dead = True
            raise Killed


class _MortalPart:
    def __init__(self, part: Any, process: Process) -> None:
        self._part = part
        self._process = process

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._part, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._process.step(f"before:{name}")
            result = method(*args, **kwargs)
            self._process.step(f"after:{name}")
            return result

        return call


def mortal_ledger(ledger: Ledger, process: Process) -> Ledger:
    """The real ledger behind a process that may be dead."""
    return with_parts(ledger, lambda part: _MortalPart(part, process))


class World:
    """The table `lake.db.t` of partitions a, b, … with six small files each."""

    def __init__(self, partitions: str = "ab", policy: Policy = POLICY) -> None:
        self.catalog = FakeCatalog("lake")
        self.ledger = memory_ledger()
        self.clock = SetClock()
        self.ledger_clock = self.clock
        self.policy = policy
        self.runs = itertools.count(1)
        files = [f for p in partitions for f in small(6, partition=f"p={p}")]
        self.now = table_of(files)
        self.catalog.put(self.now)
        self.tokens: list[str] = []
        self.writes: list[tuple[str, ...]] = []
        self.adoptions: list[tuple[str, ...]] = []
        self.adopt_fails: Exception | None = None
        self.lost: set[str] = set()
        self.elsewhere: dict[str, Any] = {}
        self.cancelled = self.abandoned = 0
        self.before_write: Callable[[Batch], None] = lambda _batch: None
        self.before_commit: Callable[[Batch], None] = lambda _batch: None
        self.write_result: Callable[[Written], Written] = lambda written: written
        self.reject: Rejection | None = None
        self.unknown: str = ""
        self.unfit: Exception | None = None
        self.events: list[Event] = []
        self.measured_by_engine: list[TableId] = []

    # the table

    def commit(
        self,
        removed: Collection[str],
        added: Iterable[LiveFile],
        summary: Mapping[str, str] | None = None,
        operation: str = "append",
    ) -> Snapshot:
        old = self.now.state
        number = old.last_sequence_number + 1
        parent = old.snapshot.snapshot_id if old.snapshot else None
        # Without the marks of our commits it is a writer's.
        operation = "replace" if TOKEN_PROPERTY in (summary or {}) else operation
        snapshot = Snapshot(
            1000 + number, parent, number, self.clock.ms, operation, dict(summary or {}), f"list-{number}"
        )
        state = replace(
            old,
            snapshot=snapshot,
            snapshots=(*old.snapshots, snapshot),
            last_sequence_number=number,
            metadata_location=f"mem://v{number}",
        )
        kept = (f for f in self.now.live_files if f.path not in removed)
        self.now = FakeTable(state, (*kept, *added))
        self.catalog.put(self.now)
        return snapshot

    def expire_all_but_head(self) -> None:
        """A foreign maintainer's expiry."""
        old = self.now.state
        state = replace(
            old, snapshots=old.snapshots[-1:], metadata_location=f"{old.metadata_location}-expired"
        )
        self.now = replace(self.now, state=state)
        self.catalog.put(self.now)

    def append(self, partition: str, count: int = 6) -> None:
        """A foreign writer's commit."""
        number = self.now.state.last_sequence_number + 1
        self.commit(
            (), [data(f"{partition}/{number}-{i}", 10, partition=partition, seq=number) for i in range(count)]
        )

    def rows(self) -> int:
        return sum(f.record_count for f in self.now.live_files if f.kind is FileKind.DATA)

    def files(self, partition: str) -> list[str]:
        return sorted(f.path for f in self.now.live_files if f.partition == partition)

    def our_commits(self) -> int:
        return sum(TOKEN_PROPERTY in s.summary for s in self.now.state.snapshots)

    def branch(self, name: str) -> None:
        """A branch with one commit of its own, on main's head."""
        old = self.now.state
        number = old.last_sequence_number + 1
        assert old.snapshot is not None
        ahead = Snapshot(
            1000 + number, old.snapshot.snapshot_id, number, self.clock.ms, "append", {}, f"list-{number}"
        )
        state = replace(
            old,
            snapshots=(*old.snapshots, ahead),
            refs=(*old.refs, Ref(name, "branch", ahead.snapshot_id)),
            last_sequence_number=number,
            metadata_location=f"mem://v{number}",
        )
        self.now = replace(self.now, state=state)
        self.catalog.put(self.now)

    # the program

    def run(self, process: Process | None = None, **request: Any) -> OperationOutcome:
        process = process or Process()
        asked = Request(f"run-{next(self.runs)}", **request)
        outcomes = maintain(TABLE, asked, self.context(process), self.events.append)
        return combine_outcomes(outcomes)

    def reconcile(self) -> tuple[Settled, ...]:
        return reconcile(TABLE, self.context(Process()), f"run-{next(self.runs)}")

    def expire_leases(self) -> None:
        """The time a dead process's lease takes to run out has passed."""
        with self.ledger.work._database.write(self.now.state.uuid) as conn:
            conn.execute(update(lease_table).values(expires_ms=0))

    def open_work(self) -> tuple[int, int]:
        """Open attempts and open batches."""
        uuid = self.now.state.uuid
        operation = Operation.REWRITE_DATA_FILES
        return len(self.ledger.work.open_attempts(uuid)), len(self.ledger.work.open_batches(uuid, operation))

    def history(self, partition: str) -> Any:
        found = self.ledger.health.history(self.now.state.uuid, str(TABLE), Operation.REWRITE_DATA_FILES)
        return found.of(partition)

    def context(self, process: Process) -> Context:
        engine = LoopEngine(self, process)
        return context_with(
            catalogs={TABLE.catalog: self.catalog},
            ledger=mortal_ledger(at_clock(self.ledger, self.ledger_clock), process),
            clock=self.clock,
            policy_for=lambda _table, _properties: self.policy,
            engine=lambda: engine,
            elsewhere=self.elsewhere,
        )


class LoopEngine:
    """`ports.Engine` over the world's table: one output file per group (of deletes, of its first data file),
    faults where the world puts them."""

    def __init__(self, world: World, process: Process) -> None:
        self.world = world
        self.process = process

    def versions(self) -> dict[str, str]:
        return {"loop": "1"}

    def start(self) -> None:
        if self.world.unfit is not None:
            raise self.world.unfit

    def write(self, batch: Batch, policy: Policy) -> Written:
        self.process.step("before:write")
        self.world.before_write(batch)
        self.world.writes.append(batch.partitions)
        number = len(self.world.writes)
        converts = keeps_data_files(batch.work)
        files = tuple(
            WrittenFile(
                f"out-{number}-{i}",
                5 if converts else g.input_bytes,
                1 if converts else sum(f.record_count for f in g.files),
                g.output_spec_id,
                i,
                "{}",
                kind=FileKind.POSITION_DELETES if converts else FileKind.DATA,
                referenced_data_file=g.files[0].path if converts else None,
            )
            for i, g in enumerate(batch.groups)
            if not isinstance(batch.work, RewritePositionDeleteFiles)
            or any(not d.void for d in batch.position_deletes)
        )
        rows = sum(f.record_count for f in files)
        self.process.step("after:write")
        return self.world.write_result(Written(files, Proof("full", True, rows, rows, 0)))

    def measure(self, state: TableState, policy: RewriteDataFilesPolicy) -> Measured:
        self.world.measured_by_engine.append(state.table)
        return self.world.catalog.measure(state, policy)

    def reuse_files(self, batch: Batch, written: Written) -> bool:
        self.process.step("before:adopt")
        self.world.adoptions.append(batch.partitions)
        if self.world.adopt_fails is not None:
            raise self.world.adopt_fails
        return not self.world.lost.intersection(f.path for f in written.files)

    def commit(self, batch: Batch, written: Written, context: CommitContext) -> CommitResult:
        """As the real one: the attempt is recorded, the lease asked for, then the swap, which fails on a
        base that is not the head or lacks an input."""
        world = self.world
        world.before_commit(batch)
        state = world.now.state
        assert state.snapshot is not None
        base = state.snapshot.snapshot_id
        if world.reject is not None:
            context.record_try(base, state.metadata_location)
            return CommitResult(CommitStatus.REJECTED, world.reject, base_snapshot_id=base, message="made up")
        if waiting := check_publishes(context.publish_wait(pending_publishes(state))):
            message = "; ".join(v.fact for v in waiting)
            return CommitResult(
                CommitStatus.REJECTED, Rejection.STALE, base_snapshot_id=base, message=message
            )
        if not batch.paths() <= {f.path for f in world.now.live_files}:
            return CommitResult(CommitStatus.REJECTED, Rejection.STALE, base_snapshot_id=base)
        context.record_try(base, state.metadata_location)
        if not context.lease_is_held():
            return CommitResult(CommitStatus.REJECTED, Rejection.REFUSED, base_snapshot_id=base)
        if world.unknown == "lost":
            return CommitResult(CommitStatus.UNKNOWN, base_snapshot_id=base, message="no answer")
        self.process.step("before:swap")
        added = [
            LiveFile(
                f.path,
                f.kind,
                BY_P.spec_id,
                batch.groups[f.group].partition,
                f.record_count,
                f.size_bytes,
                state.last_sequence_number + 1
                if f.kind is FileKind.POSITION_DELETES
                else batch.snapshot_sequence_number,
                "parquet",
                referenced_data_file=f.referenced_data_file,
            )
            for f in written.files
        ]
        dropped = {d.path for d in batch.equality_deletes if d.drop}
        dropped |= {d.path for d in batch.position_deletes}
        removed = dropped if keeps_data_files(batch.work) else batch.paths() | dropped
        world.tokens.append(context.token)
        summary = {TOKEN_PROPERTY: context.token, FENCE_PROPERTY: str(context.fence)}
        summary["removed-delete-files"] = str(len(dropped))
        snapshot = world.commit(removed, added, summary)
        self.process.step("after:swap")
        if world.unknown == "done":
            return CommitResult(CommitStatus.UNKNOWN, base_snapshot_id=base, message="no answer")
        return CommitResult(CommitStatus.COMMITTED, snapshot_id=snapshot.snapshot_id, base_snapshot_id=base)

    def abandon_calls(self) -> None:
        self.world.abandoned += 1

    def cancel(self) -> None:
        self.world.cancelled += 1
