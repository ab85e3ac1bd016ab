"""A process: one run of the program, whose every call of a port is a step that others may come before and at
which it may be killed, terminated, stopped or failed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from iceberg_maint.catalog.fake import FakeTable, measure_files
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import FileKind, LiveFile, TableState
from iceberg_maint.core.outcomes.outcome import OperationOutcome
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy
from iceberg_maint.core.removal.clock_agreement import Uptime
from iceberg_maint.errors import ConfigurationError, IcebergMaintError, UnknownTableError
from iceberg_maint.runner.maintain import Request
from iceberg_maint_tests.simulation.faults import At, Killed, Terminated

if TYPE_CHECKING:
    from iceberg_maint_tests.simulation.world import World


class Process:
    """One run of the program; `request.run_id` is the owner of its leases."""

    def __init__(self, world: World, table: TableId, request: Request, skew_ms: int = 0) -> None:
        self.world = world
        self.table = table
        self.request = request
        self.skew_ms = skew_ms
        self.dead = False
        self.stopped = False
        self.terminated = False
        self.engine_gone = False
        self.ended: str = ""
        self.outcomes: tuple[OperationOutcome, ...] = ()

    def step(self, name: str, call: Callable[[], Any], failure: Callable[[], Exception]) -> Any:
        """One call of a port."""
        self.give_way()
        fault = self.world.faults.of_call(name)
        if fault is not None:
            self.world.trace(f"{self.request.run_id} {name}: {fault}")
            self.world.watch.found[str(fault)] += 1
        match fault:
            case At.KILL_BEFORE:
                self.kill()
                raise Killed
            case At.TERM_BEFORE:
                self._terminate()
            case At.STOP:
                self.stopped = True
                self.give_way()
            case At.FAIL_BEFORE:
                raise failure()
        result = call()
        self.world.trace(f"{self.request.run_id} {name}")
        match fault:
            case At.KILL_AFTER:
                self.kill()
                raise Killed
            case At.TERM_AFTER:
                self._terminate()
            case At.FAIL_AFTER:
                raise failure()
        return result

    def give_way(self, until_ms: int | None = None, condition: Callable[[], bool] | None = None) -> None:
        """Lets the others go on; nothing of a dead process comes back from it."""
        if self.dead:
            raise Killed
        self.world.fibers.pause(until_ms=until_ms, condition=condition)
        if self.dead:
            raise Killed

    def kill(self) -> None:
        self.dead = True
        self.stopped = False

    def _terminate(self) -> None:
        if not self.terminated:
            self.terminated = True
            raise Terminated


class ProcessLedger:
    """The real ledger, each of whose calls is a step."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def __getattr__(self, name: str) -> Callable[..., Any]:
        process = self._process

        def call(*args: Any, **kwargs: Any) -> Any:
            def real() -> Any:
                return process.world.call_ledger(process, name, args, kwargs)

            return process.step(name, real, lambda: IcebergMaintError("ICM-128", "the ledger is lost."))

        return call


class ProcessCatalog:
    """The lake as one process sees it. `lags`: it is shown metadata of some commits ago; `hides`: only the
    snapshot that main is at, as a catalog that loads referenced snapshots only."""

    name = "lake"

    def __init__(self, process: Process) -> None:
        self._process = process

    @property
    def checks_commit_base(self) -> bool:
        return not any(table.by_ref for table in self._process.world.lake.every.values())

    def tables(self) -> tuple[TableId, ...]:
        return tuple(sorted(self._process.world.lake.tables))

    def pointers(self, tables: Collection[TableId]) -> Mapping[TableId, str]:
        known = self._process.world.lake.tables
        return {t: known[t].state.metadata_location for t in tables if t in known}

    def pin(self, table: TableId) -> TableState:
        return self._step("pin", lambda: self._process.world.shown(table))

    def metadata_document(self, _table: TableId, location: str) -> Mapping[str, Any]:
        tables = self._process.world.lake.every.values()
        (written,) = (t for t in tables if location.startswith(f"{t.location}/"))
        return self._step("metadata_document", lambda: written.document(location))

    def measure(self, state: TableState, policy: RewriteDataFilesPolicy) -> Measured:
        return self._step("measure", lambda: measure_files(FakeTable(state, self._files(state)), policy))

    def live_files(self, state: TableState, partitions: Collection[str]) -> tuple[LiveFile, ...]:
        def read() -> tuple[LiveFile, ...]:
            return tuple(f for f in self._files(state) if f.partition in partitions)

        return self._step("live_files", read)

    def find_live(
        self, state: TableState, paths: Collection[str], *, deletes: bool = False
    ) -> frozenset[str]:
        def read() -> frozenset[str]:
            files = self._process.world.lake.every[state.uuid].files
            of_all = (f for s in state.snapshots for f in files[s.snapshot_id])
            return frozenset(paths) & {f.path for f in of_all if (f.kind is not FileKind.DATA) is deletes}

        return self._step("find_live", read)

    def _files(self, state: TableState) -> tuple[LiveFile, ...]:
        table = self._process.world.lake.every[state.uuid]
        return table.files[state.snapshot.snapshot_id if state.snapshot else None]

    def _step(self, name: str, call: Callable[[], Any]) -> Any:
        failure = lambda: ConfigurationError("ICM-104", "the catalog cannot be reached.")  # noqa: E731
        return self._process.step(name, call, failure)


def unknown_table(table: TableId) -> UnknownTableError:
    return UnknownTableError("ICM-126", f"{table} is not there.")


class ProcessClock:
    """The world's time with the skew of this machine's clock."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def now_ms(self) -> int:
        return self._process.world.lake.now_ms + self._process.skew_ms

    def monotonic_seconds(self) -> float:
        return self._process.world.lake.now_ms / 1000

    def uptime(self) -> Uptime | None:
        return None

    def sleep(self, seconds: float) -> None:
        self._process.give_way(until_ms=self._process.world.lake.now_ms + int(seconds * 1000))


class Threading:
    """What `heartbeat` uses of the module `threading`, in the world's time: its thread is a fiber of the
    process that starts it."""

    def __init__(self, world: World) -> None:
        world_ = world

        class Event:
            def __init__(self) -> None:
                self.is_set = False

            def set(self) -> None:
                self.is_set = True

            def wait(self, seconds: float) -> bool:
                process = world_.process()
                until_ms = world_.lake.now_ms + int(seconds * 1000)
                process.give_way(until_ms, lambda: self.is_set)
                return self.is_set

        class Thread:
            def __init__(self, target: Callable[[], None], name: str, *, daemon: bool) -> None:
                assert daemon, "a thread that keeps its process alive"
                self._target = target
                self._name = name
                self._fiber: Any = None

            def start(self) -> None:
                process = world_.process()
                self._fiber = world_.fibers.start(process, lambda: world_.guarded(process, self._target))

            def join(self, _timeout: float | None = None) -> None:
                fiber = self._fiber
                while not fiber.done:
                    world_.process().give_way(condition=lambda: fiber.done)

        self.Event = Event
        self.Thread = Thread
