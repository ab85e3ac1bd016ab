"""Checks, gate and runs together, tick by tick."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.model.table_state import FileKind
from iceberg_maint.core.policy.data import Mode
from iceberg_maint.defs.automation import MAX_RANGES, pick_ranges
from iceberg_maint_tests.defs.conftest import World, key

T = "lake.db.t"


def test_tick_after_observe_requests_the_failing_partitions_only(world: World) -> None:
    table = world.catalog.create("db.t")
    for day, files in (("d1", 8), ("d2", 8), ("d3", 1), ("d4", 8)):
        table.add(day, files)
    world.catalog.create("db.healthy").add("d1", 1)
    assert world.observe().success
    assert world.tick() == {T: [key("d1"), key("d2"), key("d4")], "lake.db.healthy": []}


def test_tick_after_maintenance_requests_nothing(world: World) -> None:
    world.catalog.create("db.t").add("d1", 8)
    world.observe()
    assert world.tick() == {T: [key("d1")]}
    assert world.maintain(T, key("d1")).success
    assert world.tick() == {T: []}
    assert world.tick() == {T: []}
    assert world.engine.written == [(key("d1"),)]


def test_partition_that_becomes_sick_again_is_requested_again(world: World) -> None:
    table = world.catalog.create("db.t")
    table.add("d1", 8)
    world.observe()
    world.tick()
    world.maintain(T, key("d1"))
    world.tick()
    table.add("d1", 8)
    world.observe()
    assert world.tick() == {T: [key("d1")]}


def test_partition_observed_while_its_run_waits_and_sick_again_when_that_ends_is_requested_again(
    world: World,
) -> None:
    """Of a partition's check Dagster takes the evaluation that was planned or made last: not the run's own, which
    was planned before it was observed. What the run has materialized makes the other out of date."""
    table = world.catalog.create("db.t")
    table.add("d1", 8)
    world.observe()
    assert world.tick() == {T: [key("d1")]}

    def observed(_batch: object) -> None:
        table.add("d1", 8)
        world.observe()

    world.engine.before_write = observed
    assert world.maintain(T, key("d1")).success
    for _ in range(2):
        assert world.tick() == {T: [key("d1")]}


def test_failing_partition_backs_off_twice_as_long_each_time_then_is_quarantined(world: World) -> None:
    world.catalog.create("db.t").add("d1", 8)

    def broken(_batch: object) -> None:
        raise RuntimeError("lost executor")

    world.engine.before_write = broken
    world.observe()
    for wait_seconds in (300, 600):
        assert world.tick() == {T: [key("d1")]}
        assert not world.maintain(T, key("d1")).success
        assert world.tick() == {T: []}
        world.clock.sleep(wait_seconds - 1)
        assert world.tick() == {T: []}
        world.clock.sleep(2)
    assert world.tick() == {T: [key("d1")]}
    assert not world.maintain(T, key("d1")).success
    world.clock.sleep(1_000_000)
    assert world.tick() == {T: []}
    assert not world.evaluations("quarantine")[None].passed
    assert not world.evaluations("small_files")[key("d1")].passed


def test_useless_work_backs_off_and_fails_no_progress(world: World) -> None:
    world.catalog.create("db.t").add("d1", 8)
    world.engine.useless = True
    world.observe()
    for _ in range(2):
        assert world.tick() == {T: [key("d1")]}
        world.maintain(T, key("d1"))
        assert world.tick() == {T: []}
        world.clock.sleep(1000)
    assert not world.evaluations("no_progress")[None].passed


def test_equality_deletes_fail_the_check_and_are_requested(world: World) -> None:
    table = world.catalog.create("db.t")
    table.add("d1", 8)
    table.add("d1", 1, FileKind.EQUALITY_DELETES)
    world.observe()
    assert not world.evaluations("small_files")[key("d1")].passed
    assert not world.evaluations("delete_files")[key("d1")].passed
    assert world.tick() == {T: [key("d1")]}


@pytest.mark.parametrize("change", [{"mode": Mode.ADVISE}, {"blackout_hours": ("00:00-24:00",)}])
def test_policy_that_forbids_work_requests_nothing(world: World, change: dict[str, object]) -> None:
    world.catalog.create("db.t").add("d1", 8)
    world.policy = replace(world.policy, **change)
    world.observe()
    assert world.tick() == {T: []}


def test_table_property_counts_in_the_gate(world: World) -> None:
    table = world.catalog.create("db.t")
    table.add("d1", 8)
    table.set_property("maintenance.paused", "true")
    world.observe()
    assert world.tick() == {T: []}
    table.set_property("maintenance.paused", "false")
    world.observe()
    assert world.tick() == {T: [key("d1")]}


def test_paused_table_is_not_requested_until_it_is_resumed(world: World) -> None:
    world.catalog.create("db.t").add("d1", 8)
    world.observe()
    world.ledger.pause(T, "migration")
    assert world.tick() == {T: []}
    world.ledger.resume(T)
    assert world.tick() == {T: [key("d1")]}


def test_leased_table_is_not_requested(world: World) -> None:
    table = world.catalog.create("db.t")
    table.add("d1", 8)
    world.observe()
    lease = world.ledger.acquire_lease(table.state.uuid, T, "somebody", 60, 0)
    assert lease is not None
    assert world.tick() == {T: []}
    world.ledger.release_lease(lease)
    assert world.tick() == {T: [key("d1")]}


def test_gate_asks_no_catalog(world: World) -> None:
    world.catalog.create("db.t").add("d1", 8)
    world.observe()
    definitions = world.definitions
    world.catalog.unreachable = True
    assert world.tick(T, definitions=definitions) == {T: [key("d1")]}


def test_scattered_partitions_are_requested_a_few_ranges_at_a_time(world: World) -> None:
    table = world.catalog.create("db.t")
    for day in range(60):
        table.add(f"d{day:02d}", 8 if day % 2 else 1)
    world.observe()
    assert len(world.tick()[T]) == MAX_RANGES


def test_pick_ranges_takes_the_heaviest_pieces() -> None:
    due = {"a": 1.0, "c": 5.0, "d": 1.0, "f": 9.0}
    assert pick_ranges("abcdef", due, max_ranges=2) == {"c", "d", "f"}


def test_pick_ranges_never_exceeds_its_partitions() -> None:
    due = dict.fromkeys("abcdef", 1.0)
    assert pick_ranges("abcdef", due, max_partitions=4) == {"a", "b", "c", "d"}


def test_pick_ranges_leaves_out_what_dagster_does_not_know() -> None:
    assert pick_ranges("ab", {"a": 1.0, "z": 9.0}) == {"a"}
