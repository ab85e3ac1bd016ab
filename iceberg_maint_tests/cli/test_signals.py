"""Signals: ours while a run goes on, nobody's for longer than that."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from iceberg_maint.cli.command import Terminated, terminated_by_signals
from iceberg_maint.engines.spark.session.session import keeping_sigint

pytestmark = pytest.mark.seconds


def test_signal_cancels_once_and_raises_once() -> None:
    cancelled = threading.Event()
    before = signal.getsignal(signal.SIGTERM)

    def stopped_twice() -> None:
        with terminated_by_signals(cancelled.set):
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Terminated, match="SIGTERM"):
        stopped_twice()
    assert cancelled.wait(5)
    assert signal.getsignal(signal.SIGTERM) is before


def test_failing_cancel_does_not_hide_the_termination() -> None:
    with pytest.raises(Terminated), terminated_by_signals(lambda: 1 / 0):
        os.kill(os.getpid(), signal.SIGINT)


def test_off_the_main_thread_no_handler_is_set() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen: list[object] = []

    def body() -> None:
        with terminated_by_signals(lambda: None):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [before]


def test_sigint_goes_back_to_who_had_it_when_spark_has_started() -> None:
    """Spark's handler calls the JVM inside the call it interrupts, which then fails like a batch does."""
    before = signal.getsignal(signal.SIGINT)
    with keeping_sigint():
        signal.signal(signal.SIGINT, lambda *_: None)
    assert signal.getsignal(signal.SIGINT) is before
