"""What says that work goes on does not keep it from ending."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from iceberg_maint.ledger.database import Database
from iceberg_maint.ledger.leases import SqlLeases
from iceberg_maint.loop import guards

RUN = "run-1"


class Silent(SqlLeases):
    """Of a ledger that goes away without a word after the first beat of a run, and comes back when it is let."""

    def __init__(self) -> None:
        super().__init__(Database("sqlite://"))
        self.asked, self.back, self._beats = threading.Event(), threading.Event(), 0

    def record_run_heartbeat(self, run_id: str) -> None:
        self._beats += 1
        if self._beats > 1:
            self.asked.set()
            assert self.back.wait(30)
        super().record_run_heartbeat(run_id)


@pytest.fixture
def leases(monkeypatch: pytest.MonkeyPatch) -> Iterator[Silent]:
    monkeypatch.setattr(guards, "RUN_BEAT_SECONDS", 0.01)
    made = Silent()
    yield made
    made.back.set()
    for thread in threading.enumerate():
        if thread.name.startswith("heartbeat"):
            thread.join()
    made._database.close()


def test_run_ends_though_a_beat_of_it_is_never_answered(
    leases: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "_LAST_BEAT_SECONDS", 0.01)
    with guards.run_heartbeat(leases, RUN):
        assert leases.asked.wait(30)
    assert not leases.back.is_set()


def test_run_that_ends_is_heard_no_more(leases: Silent) -> None:
    with guards.run_heartbeat(leases, RUN):
        assert set(leases.run_heartbeats()) == {RUN}
        assert leases.asked.wait(30)
        leases.back.set()
    assert leases.run_heartbeats() == {}
