"""A world decided by its seed: a lake with foreign writers, the real ledger at the world's time, and several
processes of the real program whose steps come in any order."""

from __future__ import annotations

import functools
import random
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.model.ids import ALL_OPERATIONS, TableId
from iceberg_maint.core.model.table_state import Snapshot, TableState
from iceberg_maint.core.policy.data import Policy, RewriteDataFilesPolicy, RewritePositionDeleteFilesPolicy
from iceberg_maint.core.policy.housekeeping import (
    DAY_SECONDS,
    ExpireSnapshotsPolicy,
    ReleasedRetention,
    RemoveOrphanFilesPolicy,
    RewriteManifestsPolicy,
)
from iceberg_maint.core.policy.runs import ForeignMaintainersPolicy, ForeignMode, RetryPolicy, WindowsPolicy
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.ledger.batches import OutOfOrderError
from iceberg_maint.loop import guards as table_lease
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.maintain import Event, Request, maintain
from iceberg_maint.loop.settle import reconcile, settle_open_attempts
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.ports.stored import Lease
from iceberg_maint_tests.qualification.simulation.engine import SimEngine
from iceberg_maint_tests.qualification.simulation.faults import Faults, Killed, Terminated
from iceberg_maint_tests.qualification.simulation.fibers import Fibers
from iceberg_maint_tests.qualification.simulation.invariants import Watch
from iceberg_maint_tests.qualification.simulation.lake import Lake
from iceberg_maint_tests.qualification.simulation.manifests import LakeManifests
from iceberg_maint_tests.qualification.simulation.process import Process, Threading
from iceberg_maint_tests.qualification.simulation.process_ports import (
    ProcessCatalog,
    ProcessClock,
    process_ledger,
    unknown_table,
)
from iceberg_maint_tests.qualification.simulation.sim_table import Swap
from iceberg_maint_tests.qualification.simulation.storage import forget_versions, remove_orphans
from iceberg_maint_tests.qualification.simulation.violations import ViolationError
from iceberg_maint_tests.support.context import changed, context_with
from iceberg_maint_tests.support.core.values import NOW_MS
from iceberg_maint_tests.support.fakes.ledger import memory_ledger

NAMES = tuple(TableId.parse(f"lake.db.{name}") for name in ("t", "u", "v"))
POLICY = Policy(
    # Others compact here all the time: the protocol beside them is what is simulated.
    foreign_maintainers=ForeignMaintainersPolicy(mode=ForeignMode.IGNORE),
    rewrite_data_files=RewriteDataFilesPolicy(target_file_size_bytes=100, equality_delete_max_age_seconds=60),
    rewrite_position_delete_files=RewritePositionDeleteFilesPolicy(min_input_files=2),
    expire_snapshots=ExpireSnapshotsPolicy(
        max_snapshot_age_seconds=7200, min_snapshots_to_keep=1, every_seconds=0
    ),
    rewrite_manifests=RewriteManifestsPolicy(max_manifests=8),
    remove_orphan_files=RemoveOrphanFilesPolicy(
        every_seconds=3600,
        older_than_seconds=DAY_SECONDS,
        delete_after_seconds=DAY_SECONDS,
        max_orphan_ratio=1.0,
    ),
    windows=WindowsPolicy(max_partitions_per_batch=1),
    retry=RetryPolicy(
        commit_tries=3,
        backoff_seconds=100,
        backoff_max_seconds=1000,
        quarantine_after=3,
        quarantine_after_crashes=3,
    ),
)
DAY_MS = 86_400_000
_UNIX_EPOCH_JULIAN = 2440587.5


class World:
    """Everything of one seed. `trace_lines` are the last things that happened."""

    def __init__(self, seed: int, faults: Faults | None = None, *, tables: int = 1) -> None:
        self.seed = seed
        self.choose = random.Random(seed)
        self.faults = faults or Faults.drawn(self.choose)
        self.lake = Lake(self.choose, by_ref=self.choose.random() < 0.5)
        self.lake.now_ms = NOW_MS
        self.fibers = Fibers()
        self.policy = POLICY
        if seed % 2:
            # An age is a policy; in the other half of the worlds no reader's hold lapses.
            lapsing = replace(POLICY.expire_snapshots, reader_max_silence_seconds=7 * DAY_SECONDS)
            self.policy = replace(POLICY, expire_snapshots=lapsing)
        if seed % 4 >= 2:
            in_place = replace(POLICY.remove_orphan_files, released_files=ReleasedRetention.IN_PLACE)
            self.policy = replace(self.policy, remove_orphan_files=in_place)
        self.steps = 0
        self.runs = 0
        self.processes: list[Process] = []
        self.late_ms = 0
        self.competes_until = 0
        self.backs_up_after = ""
        self.late: list[tuple[int, Swap]] = []
        self.shown_until: dict[TableId, tuple[int, Callable[[TableState], TableState]]] = {}
        self.ledger_down_until = 0
        self.restored = 0
        self.ledger_ahead_ms = 0
        self.store_ahead_ms = 0
        self.trace_lines: deque[str] = deque(maxlen=5000)
        self.trace_digest = 0
        forget_versions()
        self.ledger, self.connection, empty = _ledger()
        self.connection.deserialize(empty)
        # The database's clock is the world's; the ledger's SQL stays as it is.
        self.connection.create_function("julianday", 1, self._julianday)
        self.backups: list[bytes] = []
        for name in NAMES[:tables]:
            table = self.lake.create(name)
            for partition in ("p=a", "p=b", "p=c"):
                self.lake.append(table, partition, 6)
        self.watch = Watch(self)
        self.manifests = LakeManifests(seed, self.watch.found, self.watch.fail)

    def _julianday(self, _when: str) -> float:
        return self.lake.now_ms / DAY_MS + _UNIX_EPOCH_JULIAN

    def trace(self, line: str) -> None:
        told = f"{self.steps:5} {(self.lake.now_ms - NOW_MS) / 1000:9.2f}s {line}"
        self.trace_lines.append(told)
        self.trace_digest = zlib.crc32(told.encode(), self.trace_digest)

    # what processes ask for

    def process(self) -> Process:
        """The one whose code runs now."""
        assert self.fibers.current is not None
        return self.fibers.current.process

    def call_ledger(self, process: Process, method: tuple[str, str], args: Any, kwargs: Any) -> Any:
        part, name = method
        if self.lake.now_ms < self.ledger_down_until:
            raise IcebergMaintError("ICM-128", "the ledger is down.")
        self.watch.caller = process
        try:
            result = getattr(getattr(self.ledger, part), name)(*args, **kwargs)
        except OutOfOrderError as why:
            self.watch.out_of_order(process, name, why)
            raise
        if name == "now_ms":
            result += self.ledger_ahead_ms
        self.watch.called(process, name, args, result)
        if name == self.backs_up_after:
            self.backs_up_after = ""
            self.back_up()
        return result

    def shown(self, table: TableId) -> TableState:
        """The table as the catalog shows it now."""
        found = self.lake.tables.get(table)
        if found is None:
            raise unknown_table(table)
        until_ms, view = self.shown_until.get(table, (0, _as_it_is))
        return view(found.state) if self.lake.now_ms < until_ms else found.state

    def pointed_at(self, table: TableId) -> TableState:
        """The table as the metadata file has it that the catalog shows now."""
        shown = self.shown(table)
        hidden = self.shown_until.get(table, (0, _as_it_is))[1] is only_main
        return self.lake.tables[table].state if hidden else shown

    def can_win(self, swap: Swap) -> bool:
        return self.lake.every[swap.base.uuid].takes(swap)

    def land(self, swap: Swap) -> Snapshot | None:
        """The swap reaches the catalog."""
        table = self.lake.every[swap.base.uuid]
        before = table.rows()
        snapshot = table.swap(swap)
        if snapshot is not None and swap.operation == "expire":
            self.watch.storage.expired(table, swap)
        elif snapshot is not None:
            self.watch.landed(table, before)
        return snapshot

    def send_late(self, swap: Swap) -> None:
        """The swap is on its way and reaches the catalog some time."""
        delay_ms = self.late_ms or self.choose.choice([100, 5_000, 60_000, 600_000])
        self.late.append((self.lake.now_ms + self.choose.randint(0, delay_ms), swap))

    # processes

    def start(self, table: TableId, *, settles: bool = False, skew_ms: int = 0, **asked: Any) -> Process:
        """One more run of the program."""
        self.runs += 1
        process = Process(self, table, Request(f"run-{self.runs}", **asked), skew_ms)
        self.processes.append(process)
        shown = {key: sorted(v) if isinstance(v, frozenset) else v for key, v in asked.items()}
        self.trace(f"{process.request.run_id} starts on {table} {shown} settles={settles}")
        body = self._settle if settles else self._maintain
        self.fibers.start(process, lambda: self.guarded(process, lambda: body(process)))
        return process

    def _maintain(self, process: Process) -> None:
        def observe(event: Event) -> None:
            self.watch.event(process, event)

        outcomes = maintain(process.table, process.request, self.context(process), observe)
        process.outcomes = outcomes
        process.ended = "; ".join(f"{o.operation} {o.outcome} {o.reason}" for o in outcomes)

    def _settle(self, process: Process) -> None:
        settled = reconcile(process.table, self.context(process), process.request.run_id)
        self.watch.settled(settled)
        process.ended = f"settled {len(settled)}"

    def guarded(self, process: Process, body: Callable[[], None]) -> None:
        """Runs a fiber's code until it ends, however that is."""
        try:
            body()
        except Killed:
            process.ended = "killed"
        except Terminated:
            process.ended = "terminated"
        except (IcebergMaintError, ViolationError) as why:
            process.ended = str(why)
        except (ConnectionError, OutOfOrderError) as why:
            process.ended = repr(why)
        except Exception as why:  # noqa: BLE001 - a defect, told by the watch
            process.ended = repr(why)
            self.watch.broken(process, why)

    def context(self, process: Process) -> Context:
        engine = SimEngine(process)
        return context_with(
            catalogs={process.table.catalog: ProcessCatalog(process)},
            ledger=process_ledger(process),
            clock=ProcessClock(process),
            policy_for=lambda _table, _properties: self.policy,
            engine=lambda: engine,
            orphan_files=lambda _table: remove_orphans(process),
            store_now_ms=lambda _state: self.store_now_ms(),
        )

    # time

    def store_now_ms(self) -> int:
        """By the clock of the store."""
        return self.lake.now_ms + self.store_ahead_ms

    def step(self) -> bool:
        """Lets one fiber go on; False when all wait for something that time alone does not bring."""
        now_ms = self.lake.now_ms
        able = [f for f in self.fibers.living() if f.process.dead or not f.process.stopped]
        ready = [f for f in able if f.process.dead or f.can_run(now_ms)]
        if not ready:
            waits = [f.wakes_ms for f in able if f.wakes_ms is not None]
            if not waits:
                return False
            self.pass_time(min(waits) - now_ms)
            return True
        fiber = self.choose.choice(ready)
        self.steps += 1
        self.pass_time(self.choose.randint(0, 40))
        fiber.resume()
        if self.watch.violation is not None:
            raise self.watch.violation
        self.watch.check()
        return True

    def pass_time(self, ms: int) -> None:
        self.lake.now_ms += ms
        due = [late for late in self.late if late[0] <= self.lake.now_ms]
        for late in due:
            self.late.remove(late)
            won = self.land(late[1])
            told = f"late swap {'won' if won is not None else 'lost'}"
            self.trace(told)
            self.watch.found[told] += 1
        if due:
            self.watch.check()

    def step_until(self, happened: Callable[[], bool], limit: int = 5000) -> None:
        """Lets processes go on until something has happened."""
        for _ in range(limit):
            if not self.step():
                break
            if happened():
                return
        raise AssertionError(f"seed {self.seed}: it never happened\n{self.story()}")

    def last_line(self) -> str:
        return self.trace_lines[-1] if self.trace_lines else ""

    def settle_now(self, state: TableState, lease: Lease) -> None:
        """Settles open attempts in this thread, at no process's steps."""
        process = Process(self, state.table, Request("by hand"))
        settle_open_attempts(state, changed(self.context(process), ledger=self.ledger), lease)

    def run_until_idle(self, limit: int = 5000) -> None:
        """Lets every process that is not stopped end."""
        for _ in range(limit):
            if not any(not f.process.stopped for f in self.fibers.living()) or not self.step():
                return
        raise AssertionError(f"seed {self.seed}: processes go on for ever\n{self.story()}")

    def stop_faults(self) -> None:
        """From now on nothing goes wrong any more. What was on its way arrives."""
        self.faults.stop()
        self.competes_until = 0
        self.shown_until.clear()
        self.ledger_down_until = 0
        self.ledger_ahead_ms = self.store_ahead_ms = 0
        for process in self.processes:
            process.stopped = False

    def release(self) -> None:
        """What an operator does with quarantine, by the command `release`."""
        for table in self.lake.tables.values():
            for operation in ALL_OPERATIONS:
                history = self.ledger.health.history(table.uuid, str(table.state.table), operation)
                clean = {p: PartitionHistory() for p in history.partitions}
                self.ledger.health.set_partition_history(table.uuid, operation, clean)
        self.watch.released()

    def back_up(self) -> None:
        """The operator's backup of the ledger."""
        self.backups.append(self.connection.serialize())

    def restore(self) -> None:
        """The ledger is that of a backup again, whatever processes are at work."""
        if self.backups:
            self.restored += 1
            self.shown_until.clear()
            self.connection.deserialize(self.choose.choice([self.backups[-1], *self.backups[-4:]]))
            self.watch.start_over()

    def check_late(self) -> None:
        assert not self.late, "what was on its way has arrived"

    def story(self) -> str:
        return "\n".join(self.trace_lines)

    @contextmanager
    def alive(self) -> Iterator[World]:
        """Heartbeats beat in the world's time within the body; nothing of the world runs after it."""
        real = table_lease.threading
        table_lease.threading = Threading(self)  # type: ignore[assignment]
        try:
            yield self
        finally:
            for fiber in self.fibers.living():
                fiber.process.kill()
            while self.fibers.living():
                self.fibers.living()[0].resume()
            table_lease.threading = real


@functools.cache
def _ledger() -> tuple[Ledger, Any, bytes]:
    """The one ledger of all worlds, which take turns, its connection and its image when empty."""
    ledger = memory_ledger()
    # Not `now_ms`: its statement would stay prepared with the machine's time.
    ledger.health.known_tables()
    assert ledger.work._database._engine is not None
    connection: Any = ledger.work._database._engine.raw_connection().driver_connection
    return ledger, connection, connection.serialize()


def calm() -> Faults:
    """No faults but those that are scripted."""
    return Faults(random.Random(0))


def _as_it_is(state: TableState) -> TableState:
    return state


def only_main(state: TableState) -> TableState:
    """As a catalog that loads referenced snapshots only."""
    return replace(state, snapshots=(state.snapshot,) if state.snapshot else ())
