"""Reports while an operation works: what they say, that they end with it, and that a failure of one ends nothing."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from iceberg_maint.core.decisions.table_decision import Step
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.loop import maintain as loop
from iceberg_maint.loop.maintain import BatchEnded, Event, Progress, Request, maintain
from iceberg_maint.loop.request import CurrentStep, Run, progress_reports
from iceberg_maint.ports.engine import WorkProgress
from iceberg_maint.report.formatting import progress_line, remaining_seconds
from iceberg_maint_tests.support.loop.world import TABLE, Process, World


def run_of(world: World, observer: list[Event], reported: threading.Event) -> Run:
    def observe(event: Event) -> None:
        observer.append(event)
        reported.set()

    context = world.context(Process())
    step = Step(Operation.REWRITE_DATA_FILES)
    return Run(step, Request("run-1"), context, observe, 0.0, 0, 0, CurrentStep(context.clock))


def test_report_names_the_step_and_none_follows_the_end() -> None:
    events: list[Event] = []
    reported = threading.Event()
    run = run_of(World(), events, reported)
    run.current.enter("planning")
    with progress_reports(run, "lake.db.t", every_seconds=0.01):
        assert reported.wait(10)
    count = len(events)
    first = events[0]
    assert isinstance(first, Progress)
    assert (first.table, first.step, first.batch, first.work) == ("lake.db.t", "planning", None, None)
    threading.Event().wait(0.05)
    assert len(events) == count


def test_report_that_fails_is_followed_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Event] = []
    reported = threading.Event()
    run = run_of(World(), events, reported)
    calls: list[int] = []

    def fails_once(*_: object) -> Progress:
        calls.append(1)
        if len(calls) == 1:
            raise OSError("the JVM does not answer")
        return Progress("t", run.operation, "x", None, 0.0, None)

    monkeypatch.setattr("iceberg_maint.loop.request._progress", fails_once)
    with progress_reports(run, "lake.db.t", every_seconds=0.01):
        assert reported.wait(10)
    assert len(calls) >= 2


def test_run_with_an_observer_reports_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    world, steps = World(), list[str]()
    enter = CurrentStep.enter

    def noted(current: CurrentStep, step: str, batch: object = None) -> None:
        steps.append(step)
        enter(current, step, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(CurrentStep, "enter", noted)
    ended: list[Event] = []
    maintain(TABLE, Request("run-1"), world.context(Process()), ended.append)
    assert any(isinstance(e, BatchEnded) for e in ended)
    order = [
        "measuring",
        "waiting for the lease of the table",
        "settling earlier attempts",
        "planning",
        "writing",
    ]
    places = [steps.index(s) for s in order]
    assert places == sorted(places)
    assert set(loop.STEP_OF) == {
        Operation.REWRITE_MANIFESTS,
        Operation.EXPIRE_SNAPSHOTS,
        Operation.REMOVE_ORPHAN_FILES,
    }


MIB = 1024**2
WORK = WorkProgress("writing", 10.0, 1, 4, 1000, 25 * MIB, 900, 20 * MIB)


def test_remaining_time_is_that_of_the_less_advanced_figure() -> None:
    assert remaining_seconds(100 * MIB, WORK, 10.0) == 30.0
    assert remaining_seconds(50 * MIB, WORK, 10.0) == 30.0  # a quarter of the groups, half of the bytes
    assert remaining_seconds(100 * MIB, replace(WORK, groups=1, groups_done=0), 10.0) == 30.0
    assert remaining_seconds(100 * MIB, replace(WORK, groups_done=0), 10.0) == 30.0
    assert remaining_seconds(0, replace(WORK, groups=1), 10.0) is None
    assert remaining_seconds(100 * MIB, WorkProgress("starting Spark"), 10.0) is None


def test_line_names_group_rows_bytes_rate_and_remaining_time() -> None:
    assert progress_line("x", None, 40.0, WORK) == (
        "writing, group 2 of 4, 1,000 rows and 25.0 MiB read (2.5 MiB/s), 900 rows and 20.0 MiB written, "
        "about 30 s left, 10 s"
    )
    assert progress_line("planning", None, 3.0, None) == "planning, 3 s"
    assert (
        progress_line("searching for orphan files", None, 3.0, WorkProgress(""))
        == "searching for orphan files, 3 s"
    )
