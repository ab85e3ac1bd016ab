"""Runs killed at every step, in one grid: the next run finishes the work once, and the records say so.

What a dead process leaves behind depends only on the last call that changed something. The grid kills a run after
each of those calls, at each of its occurrences, and once before the first call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest

from iceberg_maint.core.decisions.waits import CRASH_SHARE
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation
from iceberg_maint.core.model.table_state import TOKEN_PROPERTY, FileKind
from iceberg_maint_tests.loop.test_conversion import captured_changes, changes_beside_small_files, kinds
from iceberg_maint_tests.support.loop.housekeeping import (
    EXPIRE,
    HOUSEKEEPING_POLICY,
    REGROUP,
    HousekeepingWorld,
)
from iceberg_maint_tests.support.loop.world import POLICY, TABLE, Killed, Process, World

pytestmark = [pytest.mark.slow, pytest.mark.drawn(20)]

HARMLESS = {
    "clock_reading",
    "has_unrecorded_runs",
    "history",
    "holds",
    "measurements",
    "memory_uses",
    "now_ms",
    "open_attempts",
    "open_batches",
    "open_operations",
    "pause_note",
    "put",
    "readers",
    "uncommitted_output",
    "unrecorded_runs",
}
"""Calls that change nothing from which a run starts. A run killed before or after one of them leaves what it left
after the call before it. Each run measures the health of the table again."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a run has to do, in a world that needs it, and what is true once it is done."""

    name: str
    world: Callable[[], World]
    operations: tuple[Operation, ...]
    check: Callable[[World, World], None]


def data_work() -> World:
    """Partition c needs a conversion; a and b need a rewrite, in a batch each."""
    world = captured_changes(partitions="ab")
    retry = replace(POLICY.retry, quarantine_after_crashes=50)
    world.policy = replace(world.policy, retry=retry)
    return world


def two_steps_work() -> World:
    """Partition c has small files that are rewritten before the others are converted."""
    world = changes_beside_small_files()
    retry = replace(POLICY.retry, quarantine_after_crashes=50)
    world.policy = replace(world.policy, retry=retry)
    return world


def check_two_steps(world: World, before: World) -> None:
    """Every file is healed by one rewrite and one conversion."""
    assert sorted(kinds(world, "c")) == [FileKind.DATA] * 4 + [FileKind.POSITION_DELETES]
    assert world.rows() == before.rows()
    assert world.our_commits() == len(set(world.tokens)) == 2
    check_records(world)


def check_data(world: World, before: World) -> None:
    """Every partition is healed, no row is lost or doubled, nothing is left open, every commit is on record once."""
    assert kinds(world, "c") == [FileKind.DATA] * 3 + [FileKind.POSITION_DELETES]
    assert [kinds(world, p) for p in "ab"] == [[FileKind.DATA]] * 2
    assert world.rows() == before.rows()
    assert world.our_commits() == len(set(world.tokens)) == 3
    check_records(world)


def check_records(world: World) -> None:
    """Nothing is left open, every commit is on record once."""
    assert world.open_work() == (0, 0)

    # A run that died with nothing left to do is recorded by the next one that has something to do.
    world.append("p=d")
    world.run()

    ours = [s.snapshot_id for s in world.now.state.snapshots if TOKEN_PROPERTY in s.summary]
    records = world.ledger.records.newest(str(TABLE), 100)
    assert Counter(
        b.snapshot_after for r in records for b in r.outcome.batches if b.snapshot_after is not None
    ) == Counter(ours)
    lease = world.ledger.leases.acquire(world.now.state.uuid, str(TABLE), "another", 60, 0)
    assert lease is not None
    assert world.ledger.records.unrecorded_runs(lease) == ()


def check_expiry(world: World, before: World) -> None:
    assert isinstance(world, HousekeepingWorld)
    assert isinstance(before, HousekeepingWorld)
    assert world.left_open(EXPIRE) == (0, 0)
    assert world.ids() == before.ids()[-1:]
    assert [r.name for r in world.now.state.refs] == ["main"]
    assert len(world.now.live_files) == 10


def check_manifests(world: World, before: World) -> None:
    assert isinstance(world, HousekeepingWorld)
    assert isinstance(before, HousekeepingWorld)
    assert world.left_open(REGROUP) == (0, 0)
    assert world.ids()[:5] == before.ids()
    assert len(world.now.state.manifests) == world.our_commits() == 1
    assert len(world.now.live_files) == 10


WORKS = (
    Work("data", data_work, DATA_OPERATIONS, check_data),
    Work("two-steps", two_steps_work, DATA_OPERATIONS, check_two_steps),
    Work("expiry", HousekeepingWorld, (EXPIRE,), check_expiry),
    Work("manifests", HousekeepingWorld, (REGROUP,), check_manifests),
)


def steps_of(work: Work) -> list[tuple[str, int]]:
    """The steps at which the grid kills a run of this work: each with the number of times it passes first."""
    process = Process()
    work.world().run(process, operations=work.operations)
    passed, steps = Counter[str](), [(process.seen[0], 0)]
    for step in process.seen:
        when, _, call = step.partition(":")
        if when == "after" and call not in HARMLESS:
            steps.append((step, passed[step]))
            passed[step] += 1
    return steps


GRID = [pytest.param(w, s, n, id=f"{w.name}-{s}-{n}") for w in WORKS for s, n in steps_of(w)]


@pytest.mark.parametrize(("work", "step", "spares"), GRID)
def test_killed_at_any_step_the_next_run_finishes_exactly_once(work: Work, step: str, spares: int) -> None:
    world, before = work.world(), work.world()

    with pytest.raises(Killed):
        world.run(Process(dies=step, spares=spares), operations=work.operations)
    world.expire_leases()
    committed = list(world.tokens)
    world.clock.sleep(int(HOUSEKEEPING_POLICY.retry.backoff_seconds * CRASH_SHARE))
    world.run(operations=work.operations)

    assert world.tokens[: len(committed)] == committed
    work.check(world, before)


@pytest.mark.parametrize("step", ["after:start_attempt", "after:write", "after:swap", "after:finish_attempt"])
def test_killed_again_and_again_still_finishes(step: str) -> None:
    """Each process gets one step further; back-off is waited out, no quarantine below its limit."""
    world, before = data_work(), data_work()

    for number in range(6):
        with suppress(Killed):
            world.run(Process(dies=step, spares=number // 2))
        world.expire_leases()
        world.clock.sleep(7 * 86_400)
    world.run()

    check_data(world, before)
