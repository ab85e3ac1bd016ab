"""A session that starts in the background: created once, and its error reaches the first use."""

from __future__ import annotations

import threading

import pytest

from iceberg_maint.defs.runs import table_run
from iceberg_maint.defs.runs.table_run import EarlySession

pytestmark = pytest.mark.slow

START = EarlySession.start
"""The method itself, which a fixture replaces in tests without Spark."""


@pytest.fixture(autouse=True)
def _real_start(monkeypatch: pytest.MonkeyPatch, early_starts: list[EarlySession]) -> None:
    monkeypatch.setattr(table_run.EarlySession, "start", START)


def test_session_is_created_once_by_another_thread() -> None:
    threads: list[threading.Thread] = []

    def create() -> str:
        threads.append(threading.current_thread())
        return "session"

    session = EarlySession(create)
    session.start()
    session.start()
    assert (session(), session()) == ("session", "session")
    assert [t.name for t in threads] == ["start of Spark"]


def test_session_without_a_start_is_created_by_its_use() -> None:
    assert EarlySession(lambda: threading.current_thread().name)() == "MainThread"


def test_error_of_the_start_is_raised_by_the_use() -> None:
    def fail() -> None:
        raise OSError("no Java")

    session = EarlySession(fail)
    session.start()
    with pytest.raises(OSError, match="no Java"):
        session()
