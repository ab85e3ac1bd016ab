"""Random schedules of runs that die, foreign commits and passing time: no row is ever lost or brought back, and
once the faults end the table gets healthy."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace

import pytest

from iceberg_maint.core.model.table_state import TOKEN_PROPERTY, FileKind
from iceberg_maint.core.outcomes.outcome import Rejection
from iceberg_maint.errors import RefusedError
from iceberg_maint_tests.support.loop.world import POLICY, Killed, Process, World

pytestmark = [pytest.mark.slow, pytest.mark.drawn(8)]

PATIENT = replace(POLICY, retry=replace(POLICY.retry, quarantine_after=1000, quarantine_after_crashes=1000))


LEDGER_STEPS = (
    "acquire",
    "save_plan",
    "start_attempt",
    "record_intent",
    "record_try",
    "finish_attempt",
    "put",
    "release",
    "append",
)
STEPS = [f"{when}:{what}" for what in (*LEDGER_STEPS, "write", "swap") for when in ("before", "after")]


class Schedule:
    """One world and what foreign writers did to it."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.world = World("abc", PATIENT)
        self.rows = self.world.rows()

    def foreign(self) -> None:
        """An append, a removal of one file, or another engine's compaction of one partition."""
        world, partition = self.world, f"p={self.choose.choice('abc')}"
        live = [f for f in world.now.live_files if f.partition == partition and f.kind is FileKind.DATA]
        act = self.choose.choice(["append", "append", "remove", "compact"])
        if act == "append" or not live:
            count = self.choose.randint(1, 7)
            world.append(partition, count)
            self.rows += 10 * count
        elif act == "remove":
            gone = self.choose.choice(live)
            world.commit([gone.path], ())
            self.rows -= gone.record_count
        else:
            number = world.now.state.last_sequence_number + 1
            merged = replace(
                live[0],
                path=f"{partition}/foreign-{number}",
                size_bytes=sum(f.size_bytes for f in live),
                record_count=sum(f.record_count for f in live),
                data_sequence_number=number,
            )
            world.commit([f.path for f in live], [merged])

    def run(self) -> None:
        """A run that may die, meet a foreign commit between writing and committing, or get a bad answer."""
        world, choose = self.world, self.choose
        step = choose.choice([*STEPS, "", ""])
        meets = choose.random() < 0.3
        world.reject = choose.choice([Rejection.CONFLICT, Rejection.ERROR]) if choose.random() < 0.1 else None
        world.unknown = choose.choice(["lost", "done"]) if choose.random() < 0.15 else ""

        def meet(_batch: object) -> None:
            world.before_commit = lambda _batch: None
            self.foreign()

        world.before_commit = meet if meets else lambda _batch: None
        with suppress(Killed):
            world.run(Process(dies=step, spares=choose.randint(0, 3)))
        world.before_commit = lambda _batch: None

    def check(self) -> None:
        world = self.world
        assert world.rows() == self.rows
        tokens = [s.summary[TOKEN_PROPERTY] for s in world.now.state.snapshots if TOKEN_PROPERTY in s.summary]
        assert len(tokens) == len(set(tokens))
        assert len({f.path for f in world.now.live_files}) == len(world.now.live_files)
        fences = [int(s.summary["iceberg-maint.fence"]) for s in world.now.state.snapshots if s.summary]
        assert fences == sorted(fences)


@pytest.mark.parametrize("seed", range(25))
def test_any_schedule_keeps_every_row_and_ends_healthy(seed: int) -> None:
    schedule = Schedule(seed)
    world = schedule.world
    for _ in range(schedule.choose.randint(4, 9)):
        act = schedule.choose.random()
        if act < 0.25:
            schedule.foreign()
        elif act < 0.35:
            with suppress(RefusedError):  # ICM-109: a dead run still holds the lease
                world.reconcile()
        else:
            schedule.run()
        if schedule.choose.random() < 0.8:
            world.expire_leases()
        world.clock.sleep(schedule.choose.choice([0, 1, 120, 90_000]))
        schedule.check()
    world.reject, world.unknown = None, ""
    for _ in range(3):
        world.expire_leases()
        world.clock.sleep(30 * 86_400)
        world.run()
        schedule.check()
    for partition in ("p=a", "p=b", "p=c"):
        assert len(world.files(partition)) < 5, world.files(partition)
    # What no later commit refutes stays open, and only that.
    attempts, batches = world.open_work()
    assert batches == 0
    assert attempts <= 1
