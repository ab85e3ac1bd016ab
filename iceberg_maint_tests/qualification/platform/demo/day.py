"""A day of loads, reads and maintenance in simulated time: the real conditions and the real runs of the component on an instance
of Dagster, with a table whose loads make all partitions due and whose rewrite of a partition takes four minutes."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest import mock

import dagster as dg

from iceberg_maint.component import received
from iceberg_maint.component.launch import Receive
from iceberg_maint.defs.names import NO_PROGRESS_CHECK
from iceberg_maint_tests.support.component.pipeline import (
    AUTOMATION,
    DONE,
    KEY,
    STARTED,
    PipelineProject,
    daily,
    health,
    materialization,
    raw_events,
)

START = datetime(2026, 11, 2, tzinfo=UTC).timestamp()
PARTITIONS = ("p=0", "p=1")
_MINUTE, _HOUR = 60.0, 3600.0
_TICK, _PARTITION, _OBSERVE = 2 * _MINUTE, 4 * _MINUTE, _MINUTE
WAIT_HOURS = 3
BOUND_HOURS = WAIT_HOURS + 1
"""A partition is done so long after it was due at the latest: the wait, the next measurement of each half hour, and the work."""


@dataclass
class Day:
    """What happened: the times of use and of maintenance, and the seconds from due to done. `overlaps` are batches begun beside
    a use; `late` those of them that had waited for long enough."""

    loads: int = 0
    reads: int = 0
    runs: int = 0
    yielded: int = 0
    batches: int = 0
    overlaps: int = 0
    late: int = 0
    longest_hours: float = 0.0
    open: int = 0

    def line(self) -> str:
        """One line of it."""
        return (
            f"a simulated day: {self.loads} loads, {self.reads} reads, {self.runs} runs of maintenance, {self.yielded} of them "
            f"yielded, {self.batches} batches; {self.overlaps} began beside a load or a read, and {self.late} after a wait of "
            f"{WAIT_HOURS} h; longest from due to done {self.longest_hours:.1f} h"
        )

    def faults(self) -> list[str]:
        """What it promises and does not show."""
        found = (
            [f"simulated day: {self.overlaps} batches began beside a load or a read"] if self.overlaps else []
        )
        if self.longest_hours > BOUND_HOURS:
            found.append(f"simulated day: due for {self.longest_hours:.1f} h")
        shown = {"loads": self.loads, "reads": self.reads, "yielding": self.yielded, "waiting": self.late}
        return found + [f"simulated day: no {name}" for name, count in shown.items() if not count]


class Simulation:
    """The project, its clock, and what happens when."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.now, self.day = START, Day()
        self._project, self._cursor = PipelineProject(instance), None
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._due: dict[str, float] = {}
        self._in_use = 0
        for hour in range(24):
            self._at(hour + 0.05, lambda: self._use(raw_events.key, 10 * _MINUTE))
            self._at(hour + 0.55, lambda: self._use(raw_events.key, 5 * _MINUTE))
            self._at(hour + 0.3, lambda: self._use(daily.key, 6 * _MINUTE))
        # A backfill of two hours, and a load that does not end for seven.
        self._at(6.0, lambda: self._use(raw_events.key, 2 * _HOUR))
        self._at(13.0, lambda: self._use(raw_events.key, 7 * _HOUR))

    def run(self) -> Day:
        """The day, tick by tick."""
        with (
            mock.patch.object(received, "time", SimpleNamespace(time=self._time, monotonic=time.monotonic)),
            mock.patch.object(received, "_ASK_SECONDS", 0.0),
        ):
            while self.now < START + 24 * _HOUR:
                self._pass(_TICK)
                self._tick()
        self.day.open = len(self._due)
        for since in self._due.values():
            self._note(since)
        return self.day

    def _time(self) -> float:
        return self.now

    def _at(self, hour: float, what: Callable[[], object]) -> None:
        heapq.heappush(self._events, (START + hour * _HOUR, len(self._events), what))

    def _pass(self, seconds: float) -> None:
        """Lets time pass, and what is due in it happen."""
        until = self.now + seconds
        while self._events and self._events[0][0] <= until:
            self.now, _, what = heapq.heappop(self._events)
            what()
        self.now = until

    def _use(self, key: dg.AssetKey, seconds: float) -> None:
        run, loads = self._project.begin(key), key == raw_events.key
        self._in_use += 1
        self.day.loads += loads
        self.day.reads += not loads

        def end() -> None:
            self._in_use -= 1
            self._project.end(run, key)
            for partition in PARTITIONS if loads else ():
                self._due.setdefault(partition, self.now)

        self._at((self.now + seconds - START) / _HOUR, end)

    def _tick(self) -> None:
        definitions = self._project.definitions(self._launch, WAIT_HOURS * 60)
        done = dg.evaluate_automation_conditions(
            definitions,
            self._project.instance,
            cursor=self._cursor,
            evaluation_time=datetime.fromtimestamp(self.now, UTC),
        )
        self._cursor = done.cursor
        requested = {r.key: r.true_subset for r in done.results if not r.true_subset.is_empty}
        if dg.AssetCheckKey(KEY, NO_PROGRESS_CHECK) in requested:
            self._pass(_OBSERVE)
            self._project.observe(*self._due, wait_minutes=WAIT_HOURS * 60)
        elif KEY in requested:
            self.day.runs += 1
            self._project.run(self._launch, AUTOMATION, WAIT_HOURS * 60, PARTITIONS)

    def _launch(
        self,
        _context: dg.AssetExecutionContext,
        _arguments: Sequence[str],
        _extras: Mapping[str, Any],
        receive: Receive,
    ) -> int:
        """The process elsewhere: a batch for each due partition, until it is asked to yield."""
        sent: list[dict[str, Any]] = []

        def send(message: dict[str, Any]) -> bool:
            sent.append({"number": len(sent) + 1, **message})
            return receive(sent)

        must_yield = send(STARTED)
        for partition in sorted(self._due):
            if must_yield:
                self.day.yielded += 1
                break
            self.day.batches += 1
            if self._in_use:
                waited = self.now - min(self._due.values()) > WAIT_HOURS * _HOUR
                self.day.late += waited
                self.day.overlaps += not waited
            since = self._due[partition]
            self._pass(_PARTITION)
            if self._due[partition] == since:
                del self._due[partition]
            self._note(since)
            must_yield = send(materialization(partition))
        send(health(*self._due))
        send(DONE)
        return 0

    def _note(self, since: float) -> None:
        self.day.longest_hours = max(self.day.longest_hours, (self.now - since) / _HOUR)


def simulated_day() -> Day:
    """The day on an instance of its own."""
    with dg.DagsterInstance.ephemeral() as instance:
        return Simulation(instance).run()


if __name__ == "__main__":
    import logging

    logging.disable(logging.CRITICAL)
    began = time.process_time()
    day = simulated_day()
    print(day.line(), day.faults(), f"{time.process_time() - began:.0f} CPU s")
