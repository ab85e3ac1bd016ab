"""The order in which one run of the loop calls the ledger, with the steps of the engine among the calls."""

from __future__ import annotations

import pytest

from iceberg_maint_tests.support.loop.world import Killed, Process, World

READ = ["measurements", "installation", "put"]
LEASE = ["last_leased_name", "acquire", "installation", "open_attempts"]
PLAN = ["histories", "installation", "open_batches", "memory_uses", "commit_trials", "save_plan"]
START = ["pause_note", "commit_trials", "fleet_rewrites", "start_attempt", "uncommitted_output"]
COMMIT = ["record_intent", "installation", "record_try", "holds", "swap", "finish_attempt"]
MEASURE = ["installation", "put"]
SETTLE = ["installation", "open_attempts", "unrecorded_runs"]
RECORD = ["append", "now_ms", "clock_reading", "prune", "release"]
NO_OPEN_WORK = ["histories", "open_attempts", "has_unrecorded_runs", "open_operations"]


def calls(world: World) -> list[str]:
    process = Process()
    world.run(process)
    before = [step.partition(":") for step in process.seen]
    return [name for when, _, name in before if when == "before"]


def test_run_over_two_batches_stores_intent_and_try_before_each_swap() -> None:
    batch = [*START, "write", *COMMIT, *MEASURE]
    assert calls(World("ab")) == [
        *READ,
        *NO_OPEN_WORK,
        *LEASE,
        "unrecorded_runs",
        *PLAN,
        "open_batches",
        *batch,
        *batch,
        *SETTLE,
        *RECORD,
        *NO_OPEN_WORK,
    ]


def test_run_over_table_without_work_takes_no_lease() -> None:
    world = World("a")
    world.run()
    assert calls(world) == [*READ, *NO_OPEN_WORK]


def test_run_after_kill_at_its_intent_settles_before_it_plans_and_reuses_the_files() -> None:
    world = World("a")
    with pytest.raises(Killed):
        world.run(Process(dies="after:record_intent"))
    world.expire_leases()
    settled = ["snapshot_before_files", "settle_attempt", "unrecorded_runs", "append"]
    assert calls(world) == [
        *READ,
        *NO_OPEN_WORK[:2],
        *LEASE,
        *settled,
        *PLAN,
        *RECORD[1:],
        "histories",
        *LEASE,
        "unrecorded_runs",
        *PLAN,
        *START,
        "adopt",
        *COMMIT,
        *MEASURE,
        *SETTLE,
        *RECORD,
        *NO_OPEN_WORK,
    ]
