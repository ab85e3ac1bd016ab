"""Checks, gate and runs together, tick by tick."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Mapping
from dataclasses import replace

import dagster as dg
import pytest
from dagster._core.asset_graph_view.asset_graph_view import AssetGraphView
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionResolvedStatus

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import FileKind
from iceberg_maint.core.policy.data import Mode, Policy
from iceberg_maint.defs.automation.due_work import due_work
from iceberg_maint.defs.automation.observations import read_last_observation, store_run
from iceberg_maint.defs.automation.ranges import MAX_RANGES, pick_ranges
from iceberg_maint.errors import RefusedError
from iceberg_maint.report.formatting import moment
from iceberg_maint_tests.defs.conftest import NAMES, World, key
from iceberg_maint_tests.support.context import changed

pytestmark = pytest.mark.slow

T = "lake.db.t"
PASSED = AssetCheckExecutionResolvedStatus.SUCCEEDED


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


def test_partition_that_becomes_unhealthy_again_is_requested_again(world: World) -> None:
    table = world.catalog.create("db.t")
    table.add("d1", 8)
    world.observe()
    world.tick()
    world.maintain(T, key("d1"))
    world.tick()
    table.add("d1", 8)
    world.observe()
    assert world.tick() == {T: [key("d1")]}


def test_partition_observed_while_its_run_waits_and_unhealthy_again_when_that_ends_is_requested_again(
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


def shown_by_dagster(world: World, check: str) -> dict[AssetCheckExecutionResolvedStatus, set[str]]:
    """The partitions of table T that Dagster shows with each status of a check, as its pages compute it."""
    table = TableId.parse(T)
    view = AssetGraphView.for_test(world.definitions, world.instance)
    check_key = NAMES.get_check_key(table, check)

    async def read() -> dict[AssetCheckExecutionResolvedStatus, set[str]]:
        everything = view.get_full_subset(key=check_key)
        found = {}
        for status in AssetCheckExecutionResolvedStatus:
            subset = await view.compute_subset_with_status(check_key, status, everything)
            if keys := set(subset.expensively_compute_partition_keys()):
                found[status] = keys
        return found

    return asyncio.run(read())


def test_check_observed_while_its_run_waits_shows_the_result_after_a_good_run(world: World) -> None:
    """Dagster takes the evaluation that was planned or made last: the one of the observation, which the
    run's materialization makes stale. The sensor follows the end of the run."""
    table = world.catalog.create("db.t")
    table.add("d1", 8)
    world.observe()

    def observed(_batch: object) -> None:
        table.add("d2", 1)
        world.observe(changed_only=False)

    world.engine.before_write = observed
    assert world.maintain(T, key("d1")).success
    # The observation examined the healthy partition d2.
    assert shown_by_dagster(world, "small_files") == {PASSED: {key("d2")}}
    last = read_last_observation(world.instance, NAMES.get_asset_key(TableId.parse(T)))
    assert last is not None
    assert last.run_id is not None  # so the sensor requests an observation
    world.observe()
    assert shown_by_dagster(world, "small_files") == {PASSED: {key("d1"), key("d2")}}


def test_check_that_a_terminated_run_left_without_a_result_is_evaluated_by_the_next_observation(
    world: World,
) -> None:
    table = world.catalog.create("db.t")
    table.add("d1", 8)
    table.add("d2", 1)
    world.observe()
    asset = NAMES.get_asset_key(TableId.parse(T))
    run = world.instance.create_run_for_job(
        world.definitions.resolve_implicit_global_asset_job_def().get_subset(asset_selection={asset}),
        asset_selection={asset},
        status=dg.DagsterRunStatus.CANCELED,
        tags={
            "dagster/asset_partition_range_start": key("d1"),
            "dagster/asset_partition_range_end": key("d2"),
        },
    )
    store_run(world.instance, asset, run.run_id)
    assert shown_by_dagster(world, "small_files") == {
        AssetCheckExecutionResolvedStatus.SKIPPED: {key("d1"), key("d2")}
    }
    world.observe()
    assert shown_by_dagster(world, "small_files") == {
        PASSED: {key("d2")},
        AssetCheckExecutionResolvedStatus.FAILED: {key("d1")},
    }


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


def test_failure_of_the_environment_keeps_the_automation_from_the_whole_table_for_a_while(
    world: World,
) -> None:
    table = world.catalog.create("db.t")
    for day in ("d1", "d2", "d3"):
        table.add(day, 8)

    def full(_batch: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    world.engine.before_write = full
    world.observe()
    assert world.tick() == {T: [key("d1"), key("d2"), key("d3")]}
    for wait_seconds in (300, 600):
        assert not world.maintain(T, key("d1"), key("d3")).success
        assert world.tick() == {T: []}
        world.clock.sleep(wait_seconds - 1)
        assert world.tick() == {T: []}
        world.clock.sleep(2)
        assert world.tick() == {T: [key("d1"), key("d2"), key("d3")]}
    world.engine.before_write = lambda _batch: None
    assert world.maintain(T, key("d1"), key("d3")).success


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


def test_fault_of_one_table_keeps_no_other_from_its_run(world: World) -> None:
    world.catalog.create("db.t").add("d1", 8)
    world.catalog.create("db.u").add("d1", 8)
    world.observe()
    policy_for = world.context.policies.of_table

    def of_table(table: TableId, properties: Mapping[str, str]) -> Policy:
        if table.name == "u":
            raise ZeroDivisionError("by zero")
        return policy_for(table, properties)

    world.context = changed(world.context, policy_for=of_table)
    assert world.tick() == {T: [key("d1")], "lake.db.u": []}
    sentence = due_work(world.context, TableId.parse("lake.db.u")).sentence
    assert sentence.startswith("ICM-181 unexpected ZeroDivisionError: by zero. Fix: ")


def test_paused_table_is_not_requested_until_it_is_resumed(world: World) -> None:
    world.catalog.create("db.t").add("d1", 8)
    world.observe()
    world.ledger.registry.pause(T, "migration")
    assert world.tick() == {T: []}
    world.ledger.registry.resume(T)
    assert world.tick() == {T: [key("d1")]}


def conditions(world: World, table: str = T) -> dict[str, str | None]:
    """The label of each condition in the last evaluation of a table's automation, by name."""
    result = dg.evaluate_automation_conditions(
        defs=world.definitions, instance=world.instance, cursor=world.cursor
    )
    asset = NAMES.get_asset_key(TableId.parse(table))
    [evaluation] = [r.serializable_evaluation for r in result.results if r.key == asset]
    nodes = [evaluation, *evaluation.child_evaluations]
    return {n.condition_snapshot.name: n.condition_snapshot.label for n in nodes}


def test_evaluation_says_why_due_partitions_wait(world: World) -> None:
    world.catalog.create("db.t").add("d1", 8)
    assert conditions(world)["maintenance_due"] == "maintenance due: not measured yet"
    world.observe()
    assert conditions(world)["maintenance_due"] == "maintenance due: 1 partition (small_files)"
    world.ledger.registry.pause(T, "migration", "anna")
    since = moment(world.ledger.registry.pauses()[0].pause.since_ms)
    assert conditions(world)["maintenance_due"] == (
        f"maintenance due: a pause by anna since {since}: migration (to end it: iceberg-maint resume {T}); "
        "1 partition due"
    )
    world.ledger.registry.resume(T)
    world.policy = replace(world.policy, mode=Mode.ADVISE)
    assert conditions(world)["maintenance_due"] == "maintenance due: mode: advise; 1 partition due"


def test_mode_advise_shows_on_the_asset_and_its_checks_what_a_run_would_do(world: World) -> None:
    world.catalog.create("db.t").add("d1", 8)
    world.policy = replace(world.policy, mode=Mode.ADVISE)
    world.observe()
    [*_, shown] = world.events(dg.DagsterEventType.ASSET_OBSERVATION)
    assert shown.asset_observation.metadata["advice"].value == (
        "A run would maintain 1 of 1 partition in 1 batch: 8 files with 7.8 KiB become 1 file. "
        "Deferred by mode: advise."
    )
    assert shown.asset_observation.metadata["deferred_by"].value == "mode: advise"
    assert world.evaluations("small_files")[key("d1")].description == (
        "small_files is 8, threshold 5 (rewrite_data_files.min_input_files); deferred by mode: advise"
    )


@pytest.mark.parametrize("end", [dg.DagsterRunStatus.CANCELED, dg.DagsterRunStatus.FAILURE])
def test_partition_whose_planned_evaluation_has_no_result_is_requested_again(
    world: World, end: dg.DagsterRunStatus
) -> None:
    """A range run that was terminated: Dagster skips the evaluations that it had planned."""
    table = world.catalog.create("db.t")
    for day in ("d1", "d2"):
        table.add(day, 8)
    world.observe()
    assert world.tick() == {T: [key("d1"), key("d2")]}
    asset = NAMES.get_asset_key(TableId.parse(T))
    world.instance.create_run_for_job(
        world.definitions.resolve_implicit_global_asset_job_def().get_subset(asset_selection={asset}),
        asset_selection={asset},
        status=end,
        tags={
            "dagster/asset_partition_range_start": key("d1"),
            "dagster/asset_partition_range_end": key("d2"),
        },
    )
    assert world.tick() == {T: [key("d1"), key("d2")]}


def test_leased_table_is_not_requested(world: World) -> None:
    table = world.catalog.create("db.t")
    table.add("d1", 8)
    world.observe()
    lease = world.ledger.leases.acquire(table.state.uuid, T, "somebody", 60, 0)
    assert lease is not None
    assert world.tick() == {T: []}
    world.ledger.leases.release(lease)
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


def test_table_that_cannot_be_read_is_requested_once_per_back_off(world: World) -> None:
    world.catalog.create("db.t").add("d1", 8)
    world.observe()
    world.catalog.unreadable.add(T)
    for wait_seconds in (300, 600):
        assert world.tick() == {T: [key("d1")]}
        assert not world.maintain(T, key("d1")).success
        assert world.tick() == {T: []}
        world.clock.sleep(wait_seconds - 1)
        assert world.tick() == {T: []}
        world.clock.sleep(2)


def test_failed_attempt_fails_no_progress_with_its_message_at_once(world: World) -> None:
    world.catalog.create("db.t").add("d1", 8)

    def broken(_batch: object) -> None:
        raise RefusedError("ICM-101", "file a.parquet does not exist.", "restore it.")

    world.engine.before_write = broken
    world.observe()
    assert not world.maintain(T, key("d1")).success
    check = world.evaluations("no_progress")[None]
    assert (check.passed, "ICM-101 file a.parquet does not exist" in check.description) == (False, True)
