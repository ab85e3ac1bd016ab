"""Files of dead runs that the next one takes up, where it is hard to say what came of the first: one effect, and
in the end everybody knows whose it was."""

from __future__ import annotations

import pytest

from iceberg_maint.core.model.ids import Operation
from iceberg_maint_tests.qualification.simulation.faults import Answer, At
from iceberg_maint_tests.qualification.simulation.life import Life
from iceberg_maint_tests.qualification.simulation.process import Process
from iceberg_maint_tests.qualification.simulation.sim_table import SimTable
from iceberg_maint_tests.qualification.simulation.world import NAMES, World, calm, only_main

pytestmark = pytest.mark.slow

TABLE = NAMES[0]
MINUTE_MS = 60_000
REWRITE = Operation.REWRITE_DATA_FILES


def rewrite(world: World, *stops: tuple[str, At]) -> Process:
    """One run over one partition, which ends, or stops at a call."""
    world.faults.script = list(stops)
    process = world.start(TABLE, operations=(REWRITE,), partitions=frozenset({"p=a"}))
    world.run_until_idle()
    world.late.clear()
    world.pass_time(MINUTE_MS)
    return process


def only_table(world: World) -> SimTable:
    (table,) = world.lake.tables.values()
    return table


def statuses(world: World) -> list[str]:
    return [a.status for a in world.watch.seen.attempts.values()]


def check_one_effect(world: World) -> None:
    """The partition's data is in the files that the first process wrote."""
    table, first = only_table(world), next(iter(world.watch.seen.attempts.values()))
    assert first.files
    assert first.files <= table.reach()
    assert len(table.landed) == 1
    Life(world).end_of(table)


@pytest.mark.parametrize("call", ["load", "holds", "record_try", "swap"])
def test_process_stopped_before_its_swap_loses_to_the_one_that_adopted_its_files(call: str) -> None:
    with World(0, calm()).alive() as world:
        zombie = rewrite(world, (call, At.STOP))
        assert zombie.stopped
        rewrite(world)
        assert world.watch.found["adopted"] == 1
        zombie.stopped = False
        world.run_until_idle()
        check_one_effect(world)


def test_process_stopped_before_its_swap_wins_over_the_one_that_adopted_its_files() -> None:
    with World(0, calm()).alive() as world:
        first = rewrite(world, ("swap", At.STOP))
        second = rewrite(world, ("swap", At.STOP))
        assert world.watch.found["adopted"] == 1
        for process in (first, second):
            process.stopped = False
            world.run_until_idle()
        landed = [one.token for one in only_table(world).landed]
        assert landed == [next(iter(world.watch.seen.attempts.values())).token]
        check_one_effect(world)
        assert statuses(world)[0] == "DONE"


def test_swap_that_comes_late_is_not_the_commit_of_the_dead_process_that_adopted_its_files() -> None:
    with World(0, calm()).alive() as world:
        world.late_ms = 10 * MINUTE_MS
        world.faults.answer_script = [Answer.LATE]
        first = world.start(TABLE, operations=(REWRITE,), partitions=frozenset({"p=a"}))
        world.run_until_idle()
        assert "UNKNOWN" in first.ended
        ((_, swap),) = world.late
        rewrite(world, ("swap", At.KILL_BEFORE))
        assert world.watch.found["adopted"] == 1
        assert world.land(swap) is not None
        rewrite(world)
        assert statuses(world)[:2] == ["DONE", "FAILED"]
        check_one_effect(world)


@pytest.mark.parametrize("shown", [True, False])
def test_commit_is_known_by_its_file_where_its_snapshot_is_not_to_be_seen(*, shown: bool) -> None:
    """Expired, or behind a catalog that shows but main's."""
    with World(0, calm()).alive() as world:
        rewrite(world, ("read back", At.KILL_BEFORE))
        table = only_table(world)
        world.lake.append(table, "p=b", 1)
        if shown:
            table.expire(1)
        else:
            world.shown_until[TABLE] = (world.lake.now_ms + 10 * MINUTE_MS, only_main)
        rewrite(world)
        assert world.watch.found["adopted"] == 0
        assert statuses(world) == ["DONE"]
        check_one_effect(world)


def test_two_attempts_with_the_same_files_are_one_commit_where_its_snapshot_has_expired() -> None:
    with World(0, calm()).alive() as world:
        rewrite(world, ("swap", At.KILL_BEFORE))
        rewrite(world, ("read back", At.KILL_BEFORE))
        assert world.watch.found["adopted"] == 1
        table = only_table(world)
        world.lake.append(table, "p=b", 1)
        table.expire(1)
        rewrite(world)
        assert statuses(world)[1] == "DONE"
        assert statuses(world).count("DONE") == 1
        check_one_effect(world)


def test_files_are_not_adopted_while_a_catalog_hides_what_they_are_based_on() -> None:
    with World(0, calm()).alive() as world:
        rewrite(world, ("record_intent", At.KILL_AFTER))
        table = only_table(world)
        world.lake.append(table, "p=b", 1)
        world.shown_until[TABLE] = (world.lake.now_ms + 10 * MINUTE_MS, only_main)
        rewrite(world)
        assert world.watch.found["adopted"] == 0
        assert len(table.landed) == 1
        Life(world).end_of(table)


@pytest.mark.parametrize("expired", [True, False])
def test_ledger_put_back_to_before_the_commit_does_not_offer_its_files_again(*, expired: bool) -> None:
    with World(0, calm()).alive() as world:
        world.backs_up_after = "record_intent"
        rewrite(world)
        table = only_table(world)
        if expired:
            world.lake.append(table, "p=b", 1)
            table.expire(1)
        world.restore()
        world.pass_time(MINUTE_MS)
        rewrite(world)
        assert world.watch.found["adopted"] == 0
        assert statuses(world) == ["DONE"]
        check_one_effect(world)


def test_ledger_put_back_while_a_swap_is_on_its_way_has_one_effect() -> None:
    """It does not know that the attempt was about to commit, and has its files adopted."""
    with World(0, calm()).alive() as world:
        world.backs_up_after = "record_intent"
        zombie = rewrite(world, ("swap", At.STOP))
        world.restore()
        world.pass_time(MINUTE_MS)
        other = rewrite(world, ("swap", At.STOP))
        assert world.watch.found["adopted"] == 1
        for process in (zombie, other):
            process.stopped = False
            world.run_until_idle()
        check_one_effect(world)


def test_ledger_put_back_to_its_beginning_leaves_files_to_the_orphan_pass() -> None:
    with World(0, calm()).alive() as world:
        world.back_up()
        rewrite(world, ("record_intent", At.KILL_AFTER))
        world.restore()
        rewrite(world)
        assert world.watch.found["adopted"] == 0
        assert len(only_table(world).landed) == 1
