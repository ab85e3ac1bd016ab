from __future__ import annotations

import threading
import time

import pytest
from sqlalchemy import create_engine, text

from iceberg_maint.core.removal.clock_skew import MAX_SKEW_MS
from iceberg_maint.errors import FenceLostError
from iceberg_maint.ledger.ledger import sql_ledger
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.ports.stored import BatchStatus, Lease
from iceberg_maint_tests.ledger.conftest import Place
from iceberg_maint_tests.support.fakes.ledger import memory_ledger
from iceberg_maint_tests.support.forked import CONTEXT
from iceberg_maint_tests.support.ledger.values import (
    NAME,
    OTHER_UUID,
    PROOF,
    REWRITE,
    UUID,
    make_batch,
    outcome_of,
    plan_of,
    written,
)

pytestmark = pytest.mark.seconds


def take(ledger: Ledger, owner: str, min_fence: int = 0) -> Lease | None:
    return ledger.leases.acquire(UUID, NAME, owner, 60, min_fence)


def test_now_is_the_wall_clock(ledger):
    before = time.time_ns() // 1_000_000
    told = ledger.registry.now_ms()
    assert before - 1000 <= told <= time.time_ns() // 1_000_000 + 1000


def test_lease_free_table_is_given_with_fence_one(ledger):
    assert take(ledger, "run-1") == Lease(UUID, NAME, "run-1", 1, 60)


def test_lease_held_by_another_owner_is_refused(ledger):
    first = take(ledger, "run-1")
    assert take(ledger, "run-2") is None
    assert ledger.leases.holds(first)


def test_lease_of_another_table_is_independent(ledger):
    take(ledger, "run-1")
    assert ledger.leases.acquire(OTHER_UUID, "lake.db.other", "run-2", 60, 0).fence == 1


def test_lease_same_owner_again_gets_the_next_fence_and_the_first_is_over(ledger):
    first = take(ledger, "run-1")
    second = take(ledger, "run-1")
    assert second.fence == 2
    assert (ledger.leases.holds(first), ledger.leases.holds(second)) == (False, True)


def test_lease_fence_survives_release(ledger):
    ledger.leases.release(take(ledger, "run-1"))
    assert take(ledger, "run-2").fence == 2


def test_lease_fence_is_above_the_tables_own(ledger):
    assert take(ledger, "run-1", min_fence=41).fence == 42
    assert take(ledger, "run-1", min_fence=7).fence == 43


def test_lease_of_a_table_that_was_adopted_has_fence_one(ledger):
    ledger.leases.adopt_table(UUID, NAME)
    assert ledger.leases.last_leased_name(UUID) == NAME
    assert take(ledger, "run-1").fence == 1


def test_table_with_a_lease_that_is_adopted_has_the_new_name_and_its_fence(ledger):
    ledger.leases.release(take(ledger, "run-1"))
    ledger.leases.adopt_table(UUID, "lake.db.other")
    assert ledger.leases.last_leased_name(UUID) == "lake.db.other"
    assert take(ledger, "run-2").fence == 2


def test_lease_expired_is_given_to_another(ledger, place: Place):
    first = take(ledger, "run-1")
    place.expire(first)
    assert not ledger.leases.holds(first)
    assert take(ledger, "run-2").fence == 2


def test_heartbeat_held_lease_extends_it(ledger, place: Place):
    lease = take(ledger, "run-1")
    place.sql("UPDATE icm_lease SET expires_ms = expires_ms - 30000")
    before = place.sql("SELECT expires_ms FROM icm_lease")[0][0]
    assert ledger.leases.heartbeat(lease)
    assert place.sql("SELECT expires_ms FROM icm_lease")[0][0] >= before + 30_000


def test_heartbeat_expired_lease_is_false_and_does_not_revive_it(ledger, place: Place):
    lease = take(ledger, "run-1")
    place.expire(lease)
    assert not ledger.leases.heartbeat(lease)
    assert not ledger.leases.holds(lease)


DAY_MS = 86_400_000


def test_lease_of_a_clock_that_was_ahead_is_given_to_another_after_one_length(ledger, place: Place):
    dead = take(ledger, "run-1")
    place.age("icm_lease", "expires_ms", -30 * DAY_MS)
    assert ledger.health.history(UUID, NAME, REWRITE).lease_owner is None
    assert take(ledger, "run-2") is None
    assert ledger.health.history(UUID, NAME, REWRITE).lease_owner == "run-1"
    left_ms = place.sql("SELECT expires_ms FROM icm_lease")[0][0] - ledger.registry.now_ms()
    assert 50_000 < left_ms <= 60_000
    place.age("icm_lease", "expires_ms", 60_000)
    assert take(ledger, "run-2").fence == 2
    assert not ledger.leases.holds(dead)


def test_owner_that_lives_keeps_a_lease_of_a_clock_that_was_ahead(ledger, place: Place):
    alive = take(ledger, "run-1")
    place.age("icm_lease", "expires_ms", -30 * DAY_MS)
    assert take(ledger, "run-2") is None
    assert ledger.leases.holds(alive)
    place.age("icm_lease", "expires_ms", 50_000)
    assert ledger.leases.heartbeat(alive)
    place.age("icm_lease", "expires_ms", 50_000)
    assert take(ledger, "run-2") is None
    assert ledger.leases.holds(alive)


def test_lease_beyond_the_longest_one_and_the_tolerance_of_clocks_is_not_in_force(ledger, place: Place):
    take(ledger, "run-1")
    ahead_ms = 300_000 + MAX_SKEW_MS + 4_000
    place.sql("UPDATE icm_lease SET expires_ms = :at", at=ledger.registry.now_ms() + ahead_ms)
    assert ledger.health.history(UUID, NAME, REWRITE).lease_owner is None


def test_lease_within_the_tolerance_of_clocks_is_in_force(ledger, place: Place):
    take(ledger, "run-1")
    place.age("icm_lease", "expires_ms", -300_000)
    assert take(ledger, "run-2") is None
    assert ledger.health.history(UUID, NAME, REWRITE).lease_owner == "run-1"
    assert place.sql("SELECT expires_ms FROM icm_lease")[0][0] - ledger.registry.now_ms() > 300_000


def test_heartbeat_of_a_taken_over_lease_is_false(ledger, place: Place):
    zombie = take(ledger, "run-1")
    place.expire(zombie)
    take(ledger, "run-2")
    assert not ledger.leases.heartbeat(zombie)


def test_release_by_a_zombie_leaves_the_new_owners_lease(ledger, place: Place):
    zombie = take(ledger, "run-1")
    place.expire(zombie)
    current = take(ledger, "run-2")
    ledger.leases.release(zombie)
    assert ledger.leases.holds(current)


def test_release_by_the_same_owner_with_an_old_fence_leaves_the_lease(ledger):
    old = take(ledger, "run-1")
    current = take(ledger, "run-1")
    ledger.leases.release(old)
    assert ledger.leases.holds(current)


def _writes(ledger: Ledger, lease: Lease, attempt_id: str):
    batch = make_batch("day=1")
    return {
        "save_plan": lambda: ledger.work.save_plan(lease, plan_of("day=3")),
        "start_attempt": lambda: ledger.work.start_attempt(lease, make_batch("day=2").batch_id, "run-1", {}),
        "record_intent": lambda: ledger.work.record_intent(lease, attempt_id, written(batch), PROOF),
        "record_try": lambda: ledger.work.record_try(lease, attempt_id, 1, "v1.json"),
        "finish_attempt": lambda: ledger.work.finish_attempt(
            lease, attempt_id, BatchStatus.FAILED, outcome_of(batch), {}
        ),
        "close_batch": lambda: ledger.work.close_batch(lease, make_batch("day=2").batch_id),
    }


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("expired", r"\(fence 1\) has expired"),
        ("taken over", r"\(fence 1\) is over: 'run-2' holds fence 2"),
        ("re-acquired", r"\(fence 1\) is over: 'run-1' holds fence 2"),
    ],
)
def test_every_write_of_a_lost_lease_is_refused_and_changes_nothing(ledger, place: Place, how: str, why: str):
    lease = take(ledger, "run-1")
    ledger.work.save_plan(lease, plan_of("day=1", "day=2"))
    attempt = ledger.work.start_attempt(lease, make_batch("day=1").batch_id, "run-1", {})
    if how == "re-acquired":
        take(ledger, "run-1")
    else:
        place.expire(lease)
    if how == "taken over":
        take(ledger, "run-2")
    before = _dump(place)
    for name, write in _writes(ledger, lease, attempt.attempt_id).items():
        with pytest.raises(FenceLostError, match=why):
            write()
        assert _dump(place) == before, name


def test_writes_of_an_attempt_under_an_older_fence_of_the_same_owner_are_refused(ledger):
    lease = take(ledger, "run-1")
    ledger.work.save_plan(lease, plan_of("day=1"))
    attempt = ledger.work.start_attempt(lease, make_batch("day=1").batch_id, "run-1", {})
    newer = take(ledger, "run-1")
    with pytest.raises(FenceLostError, match="fence 1, the lease has fence 2"):
        ledger.work.record_intent(newer, attempt.attempt_id, (), PROOF)


def _dump(place: Place) -> list[object]:
    tables = ("icm_lease", "icm_batch", "icm_attempt", "icm_intent", "icm_try", "icm_outcome", "icm_cursor")
    return [place.sql(f"SELECT * FROM {table}") for table in tables]


def _compete(url: str, owner: str, rounds: int, start, fences) -> None:
    """Takes and releases the one lease; between both it adds one to a plain number."""
    ledger = sql_ledger(url)
    engine = create_engine(url)
    start.wait()
    mine = []
    while len(mine) < rounds:
        lease = ledger.leases.acquire(UUID, NAME, owner, 60, 0)
        if lease is None:
            continue
        with engine.connect() as conn:
            value = conn.scalar(text("SELECT value FROM number"))
            conn.rollback()
            conn.execute(text("UPDATE number SET value = :value"), {"value": value + 1})
            conn.commit()
        mine.append(lease.fence)
        ledger.leases.release(lease)
    fences.put(mine)
    fences.close()
    fences.join_thread()


@pytest.mark.slow
def test_leases_sixteen_processes_never_overlap_and_never_share_a_fence(ledger, place: Place):
    ledger.registry.now_ms()
    place.sql("CREATE TABLE number (value INTEGER)")
    place.sql("INSERT INTO number VALUES (0)")
    start, fences = CONTEXT.Barrier(16), CONTEXT.Queue()
    processes = [
        CONTEXT.Process(target=_compete, args=(place.url, f"run-{i}", 3, start, fences)) for i in range(16)
    ]
    for process in processes:
        process.start()
    got = sorted(fence for _ in processes for fence in fences.get(timeout=240))
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert got == list(range(1, 49))
    assert place.sql("SELECT value FROM number") == [(48,)]


def test_memory_ledger_threads_take_turns():
    ledger = memory_ledger()
    fences: list[int] = []

    def work(owner: str) -> None:
        for _ in range(20):
            if (lease := take(ledger, owner)) is not None:
                fences.append(lease.fence)
                ledger.leases.release(lease)

    threads = [threading.Thread(target=work, args=(f"run-{i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fences) == len(set(fences)) > 0
