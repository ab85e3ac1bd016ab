"""An engine that starts in the background: its error reaches the first use, not the thread."""

from __future__ import annotations

import threading

import pytest

from iceberg_maint.core.decisions.applicability import SPARK_4
from iceberg_maint.defs.runs.table_run import start_early
from iceberg_maint.loop.context import EngineAccess
from iceberg_maint_tests.support.context import spark_access

pytestmark = pytest.mark.slow


class Starting:
    """An engine that notes the threads that start it, and cannot be started."""

    def __init__(self) -> None:
        self.threads: list[str] = []
        self.was_started = threading.Event()

    def start(self) -> None:
        self.threads.append(threading.current_thread().name)
        self.was_started.set()
        raise OSError("no Java")


def test_engine_is_made_once_and_started_by_another_thread_and_by_its_use() -> None:
    made: list[Starting] = []

    def make() -> Starting:
        made.append(Starting())
        return made[-1]

    engine = EngineAccess(make, spark_access(), SPARK_4)  # type: ignore[arg-type]
    start_early(engine)
    engine()
    [starting] = made
    assert starting.was_started.wait(30)
    with pytest.raises(OSError, match="no Java"):
        engine().start()
    assert starting.threads == ["start of Spark", "MainThread"]
