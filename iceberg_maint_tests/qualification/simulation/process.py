"""A process: one run of the program, whose every call of a port is a step that others may come before and at
which it may be killed, terminated, stopped or failed."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from iceberg_maint.core.commits.change import Violation
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import Snapshot, TableState
from iceberg_maint.core.outcomes.outcome import OperationOutcome
from iceberg_maint.loop.maintain import Request
from iceberg_maint_tests.qualification.simulation.faults import At, Faults, Killed, Terminated
from iceberg_maint_tests.qualification.simulation.fibers import Fibers
from iceberg_maint_tests.qualification.simulation.lake import Lake
from iceberg_maint_tests.qualification.simulation.manifests import LakeManifests
from iceberg_maint_tests.qualification.simulation.sim_table import Swap


class StorageWatch(Protocol):
    """What checks an expiry or a step of the orphan scan before it takes effect."""

    def moves(self, source: str) -> None: ...

    def deletes(self, path: str) -> None: ...

    def expires(self, process: Process, swap: Swap) -> None: ...


class ProcessWatch(Protocol):
    """What a process and its ports use of the watch."""

    found: Counter[str]

    @property
    def storage(self) -> StorageWatch: ...

    def gated(self, batch_id: str, violations: Sequence[Violation]) -> None: ...


class ProcessWorld(Protocol):
    """What a process and its ports use of the world."""

    choose: random.Random
    faults: Faults
    lake: Lake
    manifests: LakeManifests
    fibers: Fibers
    steps: int
    competes_until: int

    @property
    def watch(self) -> ProcessWatch: ...

    def trace(self, line: str) -> None: ...

    def process(self) -> Process: ...

    def guarded(self, process: Process, body: Callable[[], None]) -> None: ...

    def call_ledger(self, process: Process, name: str, args: Any, kwargs: Any) -> Any: ...

    def shown(self, table: TableId) -> TableState: ...

    def pointed_at(self, table: TableId) -> TableState: ...

    def store_now_ms(self) -> int: ...

    def can_win(self, swap: Swap) -> bool: ...

    def land(self, swap: Swap) -> Snapshot | None: ...

    def send_late(self, swap: Swap) -> None: ...


class Process:
    """One run of the program; `request.run_id` is the owner of its leases."""

    def __init__(self, world: ProcessWorld, table: TableId, request: Request, skew_ms: int = 0) -> None:
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


class Threading:
    """What `heartbeat` uses of the module `threading`, in the world's time: its thread is a fiber of the
    process that starts it. The rest is the module's."""

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)

    def __init__(self, world: ProcessWorld) -> None:
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
