"""Maintenance runs: what is materialized, what is told, what is retried."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import dagster as dg
import pytest
from dagster._core.errors import DagsterExecutionInterruptedError
from sqlalchemy import update

from iceberg_maint.core.model.ids import UNPARTITIONED_KEY, Operation, TableId
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import FileKind
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import Mode
from iceberg_maint.defs.automation.observations import read_last_observation
from iceberg_maint.defs.names import HOUSEKEEPING_CHECKS, PARTITION_CHECKS, TABLE_CHECKS
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.ledger.schema import lease
from iceberg_maint.loop import request
from iceberg_maint.loop.context import EngineAccess
from iceberg_maint.report.deferrals import refusal
from iceberg_maint_tests.defs.conftest import Table, World, key
from iceberg_maint_tests.support.fakes.catalog import UNPARTITIONED

pytestmark = pytest.mark.slow

NAMES = IcebergTranslator()

T = "lake.db.t"
KEY = NAMES.get_asset_key(TableId.parse(T))


@pytest.fixture
def sick(world: World) -> Table:
    """Partitions d1, d2, d3 with eight small files each, d4 with one."""
    table = world.catalog.create("db.t")
    for day, files in (("d1", 8), ("d2", 8), ("d3", 8), ("d4", 1)):
        table.add(day, files)
    world.observe()
    return table


def test_run_of_one_partition_touches_only_it(world: World, sick: Table) -> None:
    assert world.maintain(T, key("d2")).success
    assert world.materialized(T) == {key("d2")}
    assert world.engine.written == [(key("d2"),)]


def test_run_with_due_work_starts_spark_before_it_measures(
    world: World, sick: Table, early_starts: list[EngineAccess]
) -> None:
    world.maintain(T, key("d1"))
    assert len(early_starts) == 1


def test_run_logs_its_progress_inside_a_batch_at_least_every_ten_seconds(
    world: World, sick: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, minute_over = threading.Event(), threading.Event()

    class SetEvent(threading.Event):
        """An event whose timeout passes on the clock of the world while the batch is written."""

        def wait(self, timeout: float | None = None) -> bool:
            if writing.is_set() and not minute_over.is_set():
                world.clock.sleep(timeout or 0)
                if world.clock.now_ms() >= end_ms:
                    minute_over.set()
            return super().wait(0.001)

    def write_for_a_minute(_batch: Batch) -> None:
        writing.set()
        assert minute_over.wait(30)

    end_ms = world.clock.now_ms() + 60_000
    world.engine.before_write = write_for_a_minute
    monkeypatch.setattr(request, "threading", SimpleNamespace(Event=SetEvent, Thread=threading.Thread))
    result = world.maintain(T, key("d1"))
    assert result.success
    messages = [entry.user_message for entry in world.instance.all_logs(result.run_id)]
    lines = [re.fullmatch(r"rewrite_data_files: writing, (\d+) s", m) for m in messages]
    seconds = [int(m[1]) for m in lines if m]
    gaps = [after - before for before, after in zip([0, *seconds], [*seconds, 60], strict=True)]
    assert max(gaps) == 8


def test_run_of_a_healthy_table_starts_no_spark(world: World, early_starts: list[EngineAccess]) -> None:
    world.catalog.create("db.t").add("d1", 1)
    world.observe()
    assert world.maintain(T, key("d1")).success
    assert early_starts == []


def test_run_has_a_tag_with_its_table_and_logs_no_message_on_missing_outputs(
    world: World, sick: Table
) -> None:
    result = world.maintain(T, key("d2"))
    run = world.instance.get_run_by_id(result.run_id)
    assert run is not None
    assert run.tags["iceberg_maint/table"] == T
    messages = [entry.user_message for entry in world.instance.all_logs(result.run_id)]
    assert [m for m in messages if "expected outputs" in m] == []
    assert any("rewrite_data_files, plan" in m for m in messages)


def test_range_run_touches_exactly_its_partitions(world: World, sick: Table) -> None:
    assert world.maintain(T, key("d2"), key("d3")).success
    assert world.materialized(T) == {key("d2"), key("d3")}
    assert {p for batch in world.engine.written for p in batch} == {key("d2"), key("d3")}


def test_range_run_evaluates_every_partition_against_its_own_materialization(
    world: World, sick: Table
) -> None:
    world.maintain(T, key("d1"), key("d4"))
    found = world.evaluations("small_files")
    ids = world.instance.get_latest_storage_id_by_partition(
        KEY, dg.DagsterEventType.ASSET_MATERIALIZATION, partitions=set(map(key, ("d1", "d2", "d3", "d4")))
    )
    assert {p: e.passed for p, e in found.items()} == dict.fromkeys(ids, True)
    assert {p: e.target_materialization_data.storage_id for p, e in found.items()} == ids


def test_healthy_partition_asked_for_is_materialized_as_no_op(world: World, sick: Table) -> None:
    assert world.maintain(T, key("d4")).success
    assert world.engine.written == []
    [event] = world.events(dg.DagsterEventType.ASSET_MATERIALIZATION)
    metadata = event.materialization.metadata
    assert metadata["outcome"].value == "NO_OP"
    assert metadata["reason"].value.startswith("healthy:")


def test_healthy_partition_is_rewritten_when_forced(world: World, sick: Table) -> None:
    assert world.maintain(T, key("d4"), iceberg_maint__force="true").success
    assert world.engine.written == [(key("d4"),)]


def test_partition_that_was_only_advised_is_not_materialized(world: World, sick: Table) -> None:
    world.policy = replace(world.policy, mode=Mode.ADVISE)
    assert world.maintain(T, key("d1"), key("d4")).success
    assert world.engine.written == []
    assert world.materialized(T) == {key("d4")}
    assert not world.evaluations("small_files")[key("d1")].passed


def test_materialization_reports_what_was_done_in_numbers(world: World, sick: Table) -> None:
    world.maintain(T, key("d1"))
    [event] = world.events(dg.DagsterEventType.ASSET_MATERIALIZATION)
    metadata = event.materialization.metadata
    numbers = {
        "small_files_before": 8,
        "small_files_after": 1,
        "batch_input_files": 8,
        "batch_output_files": 1,
    }
    assert {k: metadata[k].value for k in numbers} == numbers
    assert all(isinstance(metadata[k], dg.IntMetadataValue) for k in numbers)
    assert metadata["outcome"].value == "IMPROVED"
    assert metadata["proof"].value == "full equal: 10 rows in = 10 out + 0 deleted"


def test_card_is_the_first_entry_of_each_event_and_the_last_materialization_has_the_certificate(
    world: World, sick: Table
) -> None:
    result = world.maintain(T, key("d1"), key("d4"))
    assert result.success
    events = [e.materialization for e in world.events(dg.DagsterEventType.ASSET_MATERIALIZATION)]
    assert [next(iter(e.metadata)) for e in events] == ["card"] * 4
    assert [e.partition for e in events if "proof_certificate" in e.metadata] == [key("d3")]
    certificate = next(e.metadata["proof_certificate"].value for e in events if e.partition == key("d3"))
    assert certificate.startswith("**PROVED**: 2 commits proved: 20 rows in = 20 rows out + 0 deleted.")
    assert f"Run `{result.run_id}` on {T}, started by a person in Dagster" in certificate
    assert certificate.rstrip() in [e.user_message for e in world.instance.all_logs(result.run_id)]
    observation = world.events(dg.DagsterEventType.ASSET_OBSERVATION)[-1].asset_observation
    card = observation.metadata["card"].value
    assert next(iter(observation.metadata)) == "card"
    assert card.startswith("**Healthy:** every metric of 4 partitions is within its threshold.")
    assert "Last proof: **PROVED**" in card
    assert f"`iceberg-maint proof {result.run_id}`" in card
    assert "Data files by size, before → now:\n- below 1 MiB: ████████████ 25 → ██ 4" in card
    # A later run that does nothing hides neither.
    assert world.maintain(T, key("d4")).success
    card = world.events(dg.DagsterEventType.ASSET_OBSERVATION)[-1].asset_observation.metadata["card"].value
    assert f"`iceberg-maint proof {result.run_id}`" in card


def test_proof_that_cannot_be_read_fails_no_maintenance(world: World, sick: Table) -> None:
    world.engine.fingerprint = "unreadable"
    assert world.maintain(T, key("d1")).success
    [event] = world.events(dg.DagsterEventType.ASSET_MATERIALIZATION)
    assert "not described: ValueError" in event.materialization.metadata["proof_certificate"].value
    assert world.observe(changed_only=False).success
    assert world.evaluations("no_progress")[None].passed


def test_figures_of_a_batch_add_up_over_the_partitions_of_the_batch(world: World, sick: Table) -> None:
    assert world.maintain(T, key("d1"), key("d3")).success
    assert [len(partitions) for partitions in world.engine.written] == [2, 1]
    events = world.events(dg.DagsterEventType.ASSET_MATERIALIZATION)
    files = [e.materialization.metadata.get("batch_input_files") for e in events]
    assert [None if f is None else f.value for f in files] == [16, None, 8]
    assert [e.materialization.metadata["batches"].value for e in events] == [1, 1, 1]
    assert [e.materialization.metadata["strategy"].value for e in events] == [
        "columnar",
        "columnar",
        "columnar",
    ]


def test_materialization_and_observation_show_the_cursor(world: World, sick: Table) -> None:
    assert cursors_of(world.events(dg.DagsterEventType.ASSET_OBSERVATION)[-1].asset_observation) == []
    world.policy = replace(world.policy, windows=replace(world.policy.windows, max_partitions_per_batch=1))
    assert world.maintain(T, key("d1"), key("d2")).success
    first, second = world.events(dg.DagsterEventType.ASSET_MATERIALIZATION)
    [row] = cursors_of(second.materialization)
    assert (row["operation"], row["batch"]) == (
        "rewrite_data_files",
        second.materialization.metadata["batch_ids"].value,
    )
    assert (row["partitions"], row["window done"], row["window batches"]) == (key("d2"), 2, 2)
    assert row["snapshot"] == second.materialization.metadata["snapshot_after"].value
    assert row["window"]
    [before] = cursors_of(first.materialization)
    assert (before["partitions"], before["window done"]) == (key("d1"), 1)
    world.observe(changed_only=False)
    observation = world.events(dg.DagsterEventType.ASSET_OBSERVATION)[-1].asset_observation
    assert cursors_of(observation) == [row]


def cursors_of(event: dg.AssetObservation | dg.AssetMaterialization) -> list[dict[str, object]]:
    return list(event.metadata["cursors"].data)


def test_partition_emptied_since_is_materialized_as_no_op(world: World, sick: Table) -> None:
    sick.drop("d1")
    assert world.maintain(T, key("d1")).success
    assert world.materialized(T) == {key("d1")}


def test_unsupported_partition_is_not_materialized_and_its_check_fails(world: World, sick: Table) -> None:
    sick.add("d1", 1, FileKind.EQUALITY_DELETES)
    assert world.maintain(T, key("d1"), key("d2")).success
    assert world.materialized(T) == {key("d2")}
    assert not world.evaluations("delete_files")[key("d1")].passed


def test_unsupported_partition_logs_the_refusal_that_the_command_line_shows(
    world: World, sick: Table, capfd: pytest.CaptureFixture[str]
) -> None:
    sick.add("d1", 1, FileKind.EQUALITY_DELETES)
    world.maintain(T, key("d1"))
    refused = refusal(T, Reason.UNSUPPORTED_KEY, None)
    assert f"{key('d1')}: UNSUPPORTED (unsupported_key): {refused}" in capfd.readouterr().err


def test_failed_batch_fails_the_run_and_keeps_what_was_done(world: World, sick: Table) -> None:
    def break_d3(batch: Batch) -> None:
        if key("d3") in batch.partitions:
            raise RuntimeError("lost executor")

    world.engine.before_write = break_d3
    result = world.maintain(T, key("d1"), key("d4"))
    assert not result.success
    assert world.materialized(T) == {key("d1"), key("d2"), key("d4")}
    assert "day=d3: FAILED" in result.failure_data_for_node("maintain__lake__db__t").error.message
    assert result.retry_attempts_for_node("maintain__lake__db__t") == 0


def overview(world: World) -> dg.AssetMaterialization:
    """The event whose metadata the overview of the asset shows."""
    event = world.instance.get_latest_materialization_event(KEY)
    assert event is not None
    assert event.asset_materialization is not None
    return event.asset_materialization


def test_failure_after_a_materialization_is_on_the_card_of_the_overview_until_it_ends(
    world: World, sick: Table
) -> None:
    def break_d3(_batch: Batch) -> None:
        raise RuntimeError("lost executor")

    assert world.maintain(T, key("d1"), key("d2")).success
    world.engine.before_write = break_d3
    assert not world.maintain(T, key("d3")).success
    assert overview(world).partition in (key("d1"), key("d2"))
    for _ in range(2):
        world.observe(changed_only=False)
    shown = overview(world)
    assert shown.partition is None
    assert shown.metadata["card"].value.startswith("**Failed:** RuntimeError: lost executor.")
    assert shown.metadata["failure"].value.startswith("RuntimeError: lost executor.")
    events = world.events(dg.DagsterEventType.ASSET_MATERIALIZATION)
    assert [e.materialization.partition for e in events].count(None) == 1
    assert world.materialized(T) == {key("d1"), key("d2"), None}
    assert world.instance.get_materialized_partitions(KEY) == {key("d1"), key("d2"), key("d4")}
    world.engine.before_write = lambda _batch: None
    assert world.maintain(T, key("d3")).success
    world.observe(changed_only=False)
    assert "failure" not in overview(world).metadata
    assert overview(world).metadata["card"].value.startswith("`day=d3`: 8 data files")


def test_table_that_cannot_be_read_is_on_the_card_of_the_overview(world: World, sick: Table) -> None:
    assert world.maintain(T, key("d1")).success
    world.catalog.unreadable.add(T)
    sick.add("d1", 1)
    world.observe(tables=[T])
    assert overview(world).metadata["card"].value.startswith("**Refused:** ICM-101")
    world.catalog.unreadable.clear()
    world.observe(changed_only=False)
    assert "**Refused:**" not in overview(world).metadata["card"].value


def test_failed_run_whose_card_is_not_shown_is_followed_by_an_observation(world: World, sick: Table) -> None:
    def fails(_batch: Batch) -> None:
        raise RuntimeError("lost executor")

    assert world.maintain(T, key("d1")).success
    world.engine.before_write = fails
    result = world.maintain(T, key("d2"))
    last = read_last_observation(world.instance, KEY)
    assert last is not None
    assert last.run_id == result.run_id
    world.observe()
    assert overview(world).partition is None


def planned(world: World, key: dg.AssetKey, checks: Sequence[str]) -> list[str]:
    """The checks that Dagster shows without a result."""
    keys = [dg.AssetCheckKey(key, check) for check in checks]
    latest = world.instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    return [k.name for k in keys if latest[k].status.value == "PLANNED"]


DATA_CHECKS = (*PARTITION_CHECKS, *TABLE_CHECKS)


def test_run_that_fails_before_its_work_leaves_no_check_without_a_result(world: World, sick: Table) -> None:
    definitions = world.definitions
    world.catalog.unreachable = True
    assert not world.maintain(T, key("d1"), definitions=definitions).success
    assert planned(world, KEY, DATA_CHECKS) == []
    assert not world.evaluations("small_files")[key("d1")].passed


def test_run_without_a_partition_key_and_without_work_leaves_no_check_without_a_result(world: World) -> None:
    world.catalog.create("db.t").add("d1", 1)
    world.observe()
    result = world.definitions.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=world.instance, raise_on_error=False, asset_selection=[KEY]
    )
    assert result.success
    assert planned(world, KEY, DATA_CHECKS) == []


def test_housekeeping_of_a_table_that_cannot_be_read_leaves_no_check_without_a_result(
    world: World, sick: Table
) -> None:
    shown = {name: world.evaluations(name)[None].passed for name in HOUSEKEEPING_CHECKS}
    world.catalog.unreadable.add(T)
    sick.add("d1", 1)
    housekeeping = NAMES.get_housekeeping_key(TableId.parse(T))
    result = world.definitions.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=world.instance, raise_on_error=False, asset_selection=[housekeeping]
    )
    assert not result.success
    assert planned(world, housekeeping, HOUSEKEEPING_CHECKS) == []
    assert {name: world.evaluations(name)[None].passed for name in HOUSEKEEPING_CHECKS} == shown


def test_terminate_is_final(world: World, sick: Table) -> None:
    def interrupted(_batch: Batch) -> None:
        raise DagsterExecutionInterruptedError

    world.engine.before_write = interrupted
    assert not world.maintain(T, key("d1")).success
    assert world.engine.cancelled == 1
    assert world.events(dg.DagsterEventType.STEP_UP_FOR_RETRY) == []
    assert world.materialized(T) == set()
    history = world.ledger.health.history(sick.state.uuid, T, Operation.REWRITE_DATA_FILES)
    assert history.lease_owner is None
    assert history.of(key("d1")).not_before_ms is None
    world.engine.before_write = lambda _batch: None
    assert world.maintain(T, key("d1")).success


@pytest.fixture
def terminated(world: World, sick: Table) -> dg.ExecuteInProcessResult:
    """A run over d1 to d4, terminated in its second batch, which holds d3."""

    def interrupted(batch: Batch) -> None:
        if key("d3") in batch.partitions:
            raise DagsterExecutionInterruptedError

    assert world.tick() == {T: [key("d1"), key("d2"), key("d3")]}
    world.engine.before_write = interrupted
    return world.maintain(T, key("d1"), key("d4"))


def test_terminated_run_says_how_far_it_came_without_a_chain_of_causes(
    world: World, terminated: dg.ExecuteInProcessResult
) -> None:
    error = terminated.failure_data_for_node("maintain__lake__db__t").error
    assert error.message.strip().endswith(f"{T}: stopped in order: 2 of 4 partitions done, the rest resumes")
    assert (error.cause, error.context) == (None, None)


def test_terminated_run_leaves_its_partitions_requested_and_its_checks_evaluated(
    world: World, terminated: dg.ExecuteInProcessResult
) -> None:
    assert world.materialized(T) == {key("d1"), key("d2")}
    shown = {p: e.passed for p, e in world.evaluations("small_files").items()}
    assert shown == {key("d1"): True, key("d2"): True, key("d3"): False, key("d4"): True}
    kind = dg.DagsterEventType.ASSET_CHECK_EVALUATION
    entries = world.instance.all_logs(terminated.run_id, of_type=kind)
    events = [entry.dagster_event.asset_check_evaluation_data for entry in entries]
    evaluated = {e.partition for e in events if e.check_name == "small_files"}
    assert evaluated == {key("d1"), key("d2"), key("d3"), key("d4")}
    assert world.tick() == {T: [key("d3")]}


def test_terminated_run_is_in_the_history_as_terminated(
    world: World, terminated: dg.ExecuteInProcessResult
) -> None:
    [record] = [r for r in world.ledger.records.newest(T, 10) if r.operation == Operation.REWRITE_DATA_FILES]
    assert (record.outcome.outcome, record.outcome.reason) == (OutcomeStatus.IMPROVED, Reason.TERMINATED)
    assert record.outcome.message == ("stopped in order: 2 of 3 partitions done, the rest resumes")


def test_partition_that_never_existed_is_dropped_and_turns_nothing_red(world: World, sick: Table) -> None:
    typo = key("d9")
    name = NAMES.get_partitions_name(TableId.parse(T))
    world.instance.add_dynamic_partitions(name, [typo])
    result = world.maintain(T, typo)
    assert not result.success
    assert (
        result.failure_data_for_node("maintain__lake__db__t")
        .error.message.strip()
        .endswith(
            f"ICM-126 {T} has and had no partition '{typo}'. The key was deleted from the asset's partitions. "
            f"Fix: list the keys with `iceberg-maint observe {T}`."
        )
    )
    assert typo not in world.instance.get_dynamic_partitions(name)
    assert world.materialized(T) == set()
    assert world.engine.written == []
    for check in PARTITION_CHECKS:
        assert world.evaluations(check)[typo].passed


def test_range_with_a_partition_that_never_existed_maintains_the_others(world: World, sick: Table) -> None:
    typo = "week=d9"  # no key that this table can have
    name = NAMES.get_partitions_name(TableId.parse(T))
    world.instance.add_dynamic_partitions(name, [typo])
    assert not world.maintain(T, key("d3"), typo).success
    assert world.materialized(T) == {key("d3"), key("d4")}
    assert typo not in world.instance.get_dynamic_partitions(name)


def test_partition_that_a_person_added_in_dagster_is_dropped_by_the_next_observation(
    world: World, sick: Table
) -> None:
    name = NAMES.get_partitions_name(TableId.parse(T))
    world.instance.add_dynamic_partitions(name, [key("d9")])
    world.observe(changed_only=False)
    assert world.instance.get_dynamic_partitions(name) == [key("d1"), key("d2"), key("d3"), key("d4")]


def test_run_reports_the_health_that_it_leaves_so_that_no_observe_run_must_follow(
    world: World, sick: Table
) -> None:
    assert world.maintain(T, key("d1"), key("d3")).success
    asset = NAMES.get_asset_key(TableId.parse(T))
    last = read_last_observation(world.instance, asset)
    assert last is not None
    assert (last.pointer, last.run_id) == (sick.state.metadata_location, None)
    [*_, shown] = world.events(dg.DagsterEventType.ASSET_OBSERVATION)
    assert shown.asset_observation.partition is None
    assert shown.asset_observation.metadata["due_partitions"].value == 0


def test_held_lease_is_waited_for_and_then_fails_the_run(world: World, sick: Table) -> None:
    assert world.ledger.leases.acquire(sick.state.uuid, T, "somebody", 600, 0)
    result = world.maintain(T, key("d1"))
    assert not result.success
    assert result.retry_attempts_for_node("maintain__lake__db__t") == 2
    assert world.materialized(T) == set()
    assert world.engine.written == []


def test_run_that_loses_its_lease_is_tried_again_and_counts_nothing_against_the_table(
    world: World, sick: Table
) -> None:
    def taken_over(batch: Batch) -> None:
        with world.ledger.leases._database.write("t") as conn:
            conn.execute(update(lease).values(expires_ms=0))
        other = world.ledger.leases.acquire(sick.state.uuid, T, "somebody", 600, 0)
        assert other is not None
        world.ledger.leases.release(other)
        world.engine.before_write = lambda _batch: None

    world.engine.before_write = taken_over
    result = world.maintain(T, key("d1"))
    assert result.success
    assert result.retry_attempts_for_node("maintain__lake__db__t") == 1
    assert world.materialized(T) == {"day=d1"}
    recorded = [
        (r.run_id, str(r.outcome.outcome), str(r.outcome.reason)) for r in world.ledger.records.newest(T, 10)
    ]
    assert recorded == [
        (f"{result.run_id}-1", "IMPROVED", "small_files"),
        (result.run_id, "DEFERRED", "lease_held"),
        (result.run_id, "DEFERRED", "lease_held"),
    ]
    [said] = [
        e.user_message
        for e in world.instance.all_logs(result.run_id)
        if e.user_message.startswith("day=d1: not maintained")
    ]
    assert said == (
        "day=d1: not maintained (lease_held): the run lost the lease of the table; the next run continues"
    )
    history = world.ledger.health.history(sick.state.uuid, T, Operation.REWRITE_DATA_FILES)
    assert (history.partitions, history.faults) == ({}, ())


def test_unreachable_catalog_is_tried_again(world: World, sick: Table) -> None:
    definitions = world.definitions
    world.catalog.unreachable = True
    result = world.maintain(T, key("d1"), definitions=definitions)
    assert not result.success
    assert result.retry_attempts_for_node("maintain__lake__db__t") == 2
    world.catalog.unreachable = False
    assert world.maintain(T, key("d1")).success


def test_dropped_table_fails_at_once(world: World, sick: Table) -> None:
    definitions = world.definitions
    del world.catalog.content[TableId.parse(T)]
    result = world.maintain(T, key("d1"), definitions=definitions)
    assert not result.success
    assert result.retry_attempts_for_node("maintain__lake__db__t") == 0


def test_run_that_only_checks_writes_nothing(world: World, sick: Table) -> None:
    job = world.definitions.resolve_implicit_global_asset_job_def().get_subset(
        asset_selection=set(), asset_check_selection={NAMES.get_check_key(TableId.parse(T), "small_files")}
    )
    assert job.execute_in_process(instance=world.instance, partition_key=key("d1")).success
    assert world.engine.written == []
    assert world.materialized(T) == set()
    assert not world.evaluations("small_files")[key("d1")].passed


def test_partition_over_several_batches_is_materialized_after_the_last(world: World, sick: Table) -> None:
    sick.add("d1", 16)
    windows = replace(world.policy.windows, max_files_per_batch=12)
    world.policy = replace(world.policy, windows=windows)
    seen: list[set[str]] = []
    world.engine.before_write = lambda _batch: seen.append(world.materialized(T))
    assert world.maintain(T, key("d1")).success
    assert len(seen) >= 2
    assert all(at == set() for at in seen)
    assert world.materialized(T) == {key("d1")}
    [event] = world.events(dg.DagsterEventType.ASSET_MATERIALIZATION)
    assert event.materialization.metadata["batches"].value == len(seen)


def test_unpartitioned_table_is_one_partition(world: World) -> None:
    world.catalog.create("db.flat", UNPARTITIONED).add("any", 8)
    world.observe()
    assert world.tick() == {"lake.db.flat": [UNPARTITIONED_KEY]}
    assert world.maintain("lake.db.flat", UNPARTITIONED_KEY).success
    assert world.materialized("lake.db.flat") == {UNPARTITIONED_KEY}
    assert world.tick() == {"lake.db.flat": []}


def test_crashed_run_is_requested_again_only_for_what_it_left(world: World, sick: Table) -> None:
    def run_of_a_dead_worker() -> None:
        """What Dagster knows of a worker that was killed: a run that started and planned, and ended by monitoring."""
        job = world.definitions.resolve_implicit_global_asset_job_def().get_subset(
            asset_selection={KEY}, asset_check_selection=None
        )
        run = world.instance.create_run_for_job(
            job,
            asset_selection={KEY},
            status=dg.DagsterRunStatus.STARTED,
            tags={
                "dagster/asset_partition_range_start": key("d1"),
                "dagster/asset_partition_range_end": key("d3"),
            },
        )
        world.instance.report_run_failed(run)

    assert world.tick()[T] == [key("d1"), key("d2"), key("d3")]
    world.maintain(T, key("d1"))
    run_of_a_dead_worker()
    assert world.tick()[T] == [key("d2"), key("d3")]
