"""Reports the progress of a running operation to the observer, also while the engine works on one batch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from iceberg_maint.runner.request import Progress, Run

PROGRESS_SECONDS = 4
"""Seconds between two reports."""
_LAST_REPORT_SECONDS = 5


@contextmanager
def progress_reports(run: Run, table: str, every_seconds: float = PROGRESS_SECONDS) -> Iterator[None]:
    """Reports what the operation does now until the body ends, from a thread of its own.

    A report that fails does not end the operation, and the next one tries again. No report follows the body's
    end, unless an observer or an engine that does not answer blocks one.
    """
    stop = threading.Event()

    def report_until_stopped() -> None:
        while not stop.wait(every_seconds):
            with suppress(Exception):
                report = _progress(run, table)
                if not stop.is_set():
                    run.observer(report)

    thread = threading.Thread(target=report_until_stopped, name=f"progress {table}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(_LAST_REPORT_SECONDS)


def _progress(run: Run, table: str) -> Progress:
    work = run.runtime.engine.progress() if run.batch is not None else None
    seconds = run.runtime.clock.monotonic_seconds() - run.step_started_seconds
    return Progress(table, run.operation, run.step, run.batch, round(seconds, 1), work)
