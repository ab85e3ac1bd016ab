"""Runs of the product on one table of the lake: one that meets its end, and one that takes up the work."""

from __future__ import annotations

import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlalchemy.exc import OperationalError

from iceberg_maint.cli.command import Terminated, terminated_by_signals
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.outcomes.outcome import OperationOutcome
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.maintain import Request, maintain
from iceberg_maint_tests.qualification.kill.lake import Lake
from iceberg_maint_tests.qualification.kill.points import Kind, Point, Seam
from iceberg_maint_tests.qualification.kill.seams import (
    Failpoint,
    LostAnswerError,
    observer_of,
    with_failpoint,
)

_OF_LEDGER = frozenset(
    {Seam.LOCKED, Seam.PLANNED, Seam.INTENDED, Seam.TRIED, Seam.MANIFESTED, Seam.OUTCOME, Seam.FINISHED}
)


@dataclass
class Gathering:
    """Where runs wait at their points for what happens to their process."""

    expected: int
    arrived: int = 0
    go: threading.Event = field(default_factory=threading.Event)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _gone: list[str] = field(default_factory=list)

    def arrive(self) -> None:
        """At the point; waits for `go`."""
        with self._changed:
            self.arrived += 1
            self._changed.notify_all()
        self.go.wait()

    def missed(self, why: str) -> None:
        """A run ended that had not come to its point."""
        with self._changed:
            self._gone.append(why)
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Waits until all have arrived. Raises AssertionError when one will not."""
        with self._changed:
            done = self._changed.wait_for(lambda: self._gone or self.arrived >= self.expected, seconds)
        assert done, f"{self.arrived} of {self.expected} runs at their point after {seconds} s"
        assert not self._gone, self._gone


def failing_run(lake: Lake, kind: Kind, point: Point, act: Callable[[Context], None], name: str) -> str:
    """Runs until the point, where `act` decides what happens; what came of the run in one line."""
    context = lake.context(kind)
    failpoint = Failpoint(point.seam, point.time(kind), lambda: act(context))
    broken = with_failpoint(context, failpoint, lake.place(kind) / "data")
    request = Request(name, operations=point.asked(kind))
    try:
        outcomes = maintain(lake.table(kind), request, broken, observer_of(failpoint))
        came = ", ".join(map(told, outcomes))
    except (AssertionError, AttributeError, NameError, TypeError):
        raise  # a defect of the product or of these seams, not an end that a run may meet
    except (Exception, Terminated) as why:  # noqa: BLE001 - how a run fails is what the suite is about
        came = f"{type(why).__name__}: {' '.join(str(why).split())[:200]}"
    finally:
        context.ledger.close()
    assert failpoint.reached, f"{point.code} was not reached: {came}"
    return came


def lose_answer(point: Point) -> Callable[[Context], None]:
    """What was asked for is done; the ledger, the engine or the catalog does not say so."""

    def act(context: Context) -> None:
        if point.seam is Seam.WRITING:
            context.engine().cancel()
            return
        if point.seam in _OF_LEDGER:
            raise OperationalError("lost", {}, LostAnswerError("the database went away"))
        raise LostAnswerError("the answer was lost")

    return act


def ask_to_stop(_context: Context) -> None:
    """Terminate: what Dagster and a service manager send."""
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def stopped_in_order(context_of: Callable[[], Context | None]) -> Iterator[None]:
    """SIGTERM ends the run in the body as it ends the program's."""

    def cancel() -> None:
        context = context_of()
        if context is not None:
            context.engine.cancel()

    with terminated_by_signals(cancel):
        yield


def resume(lake: Lake, kind: Kind, operations: tuple[Operation, ...]) -> tuple[OperationOutcome, ...]:
    """The next run, of a program of its own."""
    context = lake.context(kind)
    try:
        request = Request(f"resuming-{uuid.uuid4().hex}", operations=operations)
        return maintain(lake.table(kind), request, context)
    finally:
        context.ledger.close()


def told(outcome: OperationOutcome) -> str:
    """What an operation came to, in one line."""
    messages = [m for m in (outcome.message, *(b.message for b in outcome.batches)) if m]
    return " ".join([outcome.operation, outcome.outcome, outcome.reason, *messages])
