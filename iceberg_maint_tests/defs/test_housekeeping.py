"""The housekeeping asset: its checks, its automation and its runs, tick by tick."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import dagster as dg
import pytest
from dagster._core.errors import DagsterExecutionInterruptedError

from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.policy.data import Mode
from iceberg_maint.core.policy.housekeeping import ExpireSnapshotsPolicy, RemoveOrphanFilesPolicy
from iceberg_maint.core.removal.orphan_rules import RetainedOrphans, UnloggedMetadata
from iceberg_maint.defs.automation.conditions import DATA_FIRST_SECONDS
from iceberg_maint.defs.automation.due_work import read_due_work
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.errors import RefusedError
from iceberg_maint.ports.storage import OrphanWork, ReleasedWork
from iceberg_maint_tests.defs.conftest import NOW_MS, World, key
from iceberg_maint_tests.support.context import changed

pytestmark = pytest.mark.slow

NAMES = IcebergTranslator()

T = TableId.parse("lake.db.t")
DAY_MS = 86_400_000


@pytest.fixture
def world(world: World) -> World:
    """With one healthy table of twelve snapshots, two of which may expire."""
    # The ledger's clock dates the end of an operation.
    world.clock.ms = world.ledger.registry.database_ms()
    world.policy = replace(world.policy, expire_snapshots=ExpireSnapshotsPolicy(min_snapshots_to_keep=10))
    table = world.catalog.create("db.t")
    for _ in range(12):
        table.commit((), ())
    table.add("d1", 1)
    return world


def housekeep(world: World, **tags: str) -> dg.ExecuteInProcessResult:
    job = world.definitions.resolve_implicit_global_asset_job_def()
    return job.execute_in_process(
        instance=world.instance,
        raise_on_error=False,
        asset_selection=[NAMES.get_housekeeping_key(T)],
        tags=tags,
    )


def requested(world: World) -> bool:
    """Whether one tick of automation requests the housekeeping asset."""
    result = dg.evaluate_automation_conditions(
        defs=world.definitions, instance=world.instance, cursor=world.cursor
    )
    world.cursor = result.cursor
    return result.get_num_requested(NAMES.get_housekeeping_key(T)) > 0


def told(world: World) -> list[dict[str, Any]]:
    """The metadata of the asset's materializations, oldest first."""
    events = [
        e
        for e in world.events(dg.DagsterEventType.ASSET_MATERIALIZATION)
        if e.materialization.asset_key == NAMES.get_housekeeping_key(T)
    ]
    return [{k: v.value for k, v in e.materialization.metadata.items()} for e in events]


def passed(world: World) -> dict[str, bool]:
    return {c: world.evaluations(c)[None].passed for c in ("manifests", "snapshots", "orphan_files")}


def test_asset_follows_its_data_in_the_same_pool(world: World) -> None:
    asset = world.definitions.resolve_asset_graph().get(NAMES.get_housekeeping_key(T))
    assert asset.parent_keys == {NAMES.get_asset_key(T)}
    assert (asset.partitions_def, asset.pools) == (None, {NAMES.get_pool(T)})


def test_observation_reports_what_would_expire_before_it_does(world: World) -> None:
    assert world.observe().success
    assert passed(world) == {"manifests": True, "snapshots": False, "orphan_files": False}
    data = world.evaluations("snapshots")[None].metadata
    assert data["expirable_snapshots"].value == 3.0
    would = [r.data["snapshot"] for r in data["would_expire"].records]
    assert would == ["1", "2", "3"]
    assert len(world.catalog.made[T].state.snapshots) == 13


def test_automation_requests_it_until_it_is_done_and_again_a_day_later(world: World) -> None:
    world.observe()
    assert requested(world)
    assert housekeep(world).success
    assert passed(world) == {"manifests": True, "snapshots": True, "orphan_files": True}
    plotted = {"manifests": "manifests", "snapshots": "expirable_snapshots", "orphan_files": "orphan_files"}
    for check, metric in plotted.items():
        assert isinstance(world.evaluations(check)[None].metadata[metric].value, int | float)
    assert world.evaluations("snapshots")[None].metadata["expirable_snapshots"].value == 0.0
    assert not requested(world)
    assert [s.snapshot_id for s in world.catalog.made[T].state.snapshots] == list(range(4, 14))
    first = told(world)[-1]
    assert first["expire_snapshots"].startswith("IMPROVED, snapshots: ")
    assert first["remove_orphan_files"].startswith("NO_OP, orphan_files: ")
    assert (first["expired_snapshots"], first["listed_files"]) == (3, 10)
    cursors = {r["operation"]: r for r in first["cursors"]}
    assert sorted(cursors) == ["expire_snapshots", "remove_orphan_files"]
    assert cursors["expire_snapshots"]["partitions"] == "*"
    assert world.orphans.swept == [True]


def test_unchanged_table_is_not_looked_through_again_before_its_time(world: World) -> None:
    world.observe()
    assert housekeep(world).success
    assert housekeep(world).success
    assert world.orphans.swept == [True]
    assert told(world)[-1]["remove_orphan_files"].startswith("NO_OP, healthy: ")


def test_force_looks_again_at_once(world: World) -> None:
    world.observe()
    housekeep(world)
    assert housekeep(world, **{"iceberg_maint/force": "true"}).success
    assert world.orphans.swept == [True, True]


def test_abnormal_share_waits_for_a_person_and_backs_off(world: World) -> None:
    world.orphans.work = OrphanWork(10, 100, 9, 90, digest="abc", needs_approval=True)
    world.observe()
    assert requested(world)
    assert housekeep(world).success
    assert told(world)[-1]["remove_orphan_files"].startswith("UNSUPPORTED, approval_required: ")
    assert passed(world)["orphan_files"] is False
    assert not requested(world)
    world.clock.sleep(301)
    assert requested(world)


def test_run_tag_approves_the_orphans_of_one_scan_though_none_is_due(world: World) -> None:
    waiting = RetainedOrphans("5-abc", None, 9, 90, 1, 2, ("f",))
    world.orphans.work = OrphanWork(10, 100, 9, 90, digest="5-abc", needs_approval=True, retained=(waiting,))
    world.observe()
    assert housekeep(world).success
    assert told(world)[-1]["approve_by_run_tag"] == "iceberg_maint/approve_orphans: 5-abc"
    assert not requested(world)
    world.orphans.work = OrphanWork(10, 100, 9, 90, trashed_files=9, trashed_bytes=90, retained=())
    assert housekeep(world, **{"iceberg_maint/approve_orphans": "5-abc"}).success
    assert world.orphans.approved == ["5-abc"]
    last = told(world)[-1]
    assert last["remove_orphan_files"].startswith("IMPROVED, ")
    assert ("expire_snapshots" in last, last["trashed_files"]) == (False, 9)


def test_released_files_are_numbers_of_the_asset_and_of_the_check(world: World) -> None:
    world.orphans.released = ReleasedWork(7, 700, 5, 500, 9, 900)
    world.orphans.work = OrphanWork(10, 100, 0, 0, released=ReleasedWork(1, 10, 2, 20, 8, 800))
    world.observe()
    assert housekeep(world).success
    names = [f"released_{what}{unit}" for what in ("", "deleted_", "retained_") for unit in ("files", "mib")]
    assert [told(world)[-1][n] for n in names] == [8, 0.0006771, 7, 0.0004959, 8, 0.0007629]
    world.observe(changed_only=False)
    check = world.evaluations("snapshots")[None]
    assert [check.metadata[n].value for n in names] == [7, 0.0006676, 5, 0.0004768, 9, 0.0008583]
    assert "9 released files (900 B) are retained before their deletion." in check.description


def test_owner_who_keeps_files_is_obeyed_and_not_asked_again(world: World) -> None:
    table = world.catalog.made[T]
    world.catalog.put(
        replace(world.catalog.content[T], state=replace(table.state, properties={"gc.enabled": "false"}))
    )
    world.observe()
    assert passed(world) == {"manifests": True, "snapshots": True, "orphan_files": True}
    assert not requested(world)


@pytest.mark.parametrize("way", ["advise", "off", "paused"])
def test_policy_that_holds_it_back_starts_nothing(world: World, way: str) -> None:
    if way == "advise":
        world.policy = replace(world.policy, mode=Mode.ADVISE)
    elif way == "off":
        world.policy = replace(
            world.policy,
            expire_snapshots=ExpireSnapshotsPolicy(enabled=False),
            remove_orphan_files=RemoveOrphanFilesPolicy(enabled=False),
        )
    else:
        world.ledger.registry.pause(str(T), "by test")
    world.observe()
    assert not requested(world)
    housekeep(world)
    assert (len(world.catalog.made[T].state.snapshots), world.orphans.swept) == (13, [])
    assert [t["rewrite_manifests"].split(":")[0] for t in told(world)] == (
        ["NO_OP, healthy"] if way == "off" else []
    )


def test_blackout_and_lease_claim_nothing(world: World) -> None:
    world.observe()
    policy = world.policy
    world.policy = replace(policy, blackout_hours=("00:00-24:00",))
    assert housekeep(world).success
    world.policy = policy
    assert world.ledger.leases.acquire(world.catalog.made[T].state.uuid, str(T), "somebody", 600, 0)
    housekeep(world)
    assert told(world) == []


def test_healthy_housekeeping_is_claimed_though_an_operation_is_off(world: World) -> None:
    world.observe()
    assert housekeep(world).success
    world.policy = replace(world.policy, remove_orphan_files=RemoveOrphanFilesPolicy(enabled=False))
    assert housekeep(world).success
    last = told(world)[-1]
    assert last["expire_snapshots"].startswith("NO_OP, healthy: ")
    assert last["remove_orphan_files"].startswith("NO_OP, disabled: ")


def test_failed_operation_fails_the_run_and_the_others_are_reported(world: World) -> None:
    def broken(*_args: object, **_kwargs: object) -> OrphanWork:
        raise OSError("storage does not answer")

    world.orphans.run = broken  # type: ignore[method-assign]
    world.observe()
    assert not housekeep(world).success
    last = told(world)[-1]
    assert last["expire_snapshots"].startswith("IMPROVED, ")
    assert last["remove_orphan_files"].startswith("FAILED, error: ")


def test_housekeeping_is_requested_after_the_due_rewrite_of_the_data_and_apart_from_it(world: World) -> None:
    world.catalog.made[T].add("d2", 8)
    world.observe()
    assert not requested(world)
    assert world.maintain(str(T), key("d2")).success
    assert world.orphans.swept == []
    assert requested(world)


def test_housekeeping_waits_an_hour_at_most_for_data_that_is_always_due(world: World) -> None:
    world.catalog.made[T].add("d2", 8)
    world.observe()
    assert not requested(world)
    world.clock.sleep(DATA_FIRST_SECONDS - 1)
    assert not requested(world)
    world.clock.sleep(1)
    assert requested(world)


def test_housekeeping_does_not_wait_for_data_that_a_failure_delays(world: World) -> None:
    world.catalog.made[T].add("d2", 8)

    def broken(_batch: object) -> None:
        raise RuntimeError("lost executor")

    world.engine.before_write = broken
    world.observe()
    assert not requested(world)
    assert not world.maintain(str(T), key("d2")).success
    assert requested(world)


def test_terminated_housekeeping_without_a_catalog_stays_terminated(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error while the checks are evaluated would have Dagster retry the run."""
    world.observe()

    def interrupted(*_arguments: object) -> None:
        world.catalog.unreachable = True
        raise DagsterExecutionInterruptedError

    monkeypatch.setattr(world.engine, "commit", interrupted)
    result = housekeep(world)
    assert world.events(dg.DagsterEventType.STEP_UP_FOR_RETRY) == []
    error = result.failure_data_for_node(NAMES.get_housekeeping_op_name(T)).error
    assert "stopped in order" in error.message


def test_terminated_housekeeping_is_requested_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.observe()
    assert requested(world)

    def interrupted(*_arguments: object) -> None:
        raise DagsterExecutionInterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(world.engine, "commit", interrupted)
        result = housekeep(world)
    error = result.failure_data_for_node(NAMES.get_housekeeping_op_name(T)).error
    assert error.message.strip().endswith(
        "lake.db.t: stopped in order: 1 of 3 operations done, the rest resumes"
    )
    assert requested(world)


HELD = RetainedOrphans(
    "m1", NOW_MS, 7, 70, NOW_MS - 9 * DAY_MS, NOW_MS - 8 * DAY_MS, ("/t/data/a", "/t/data/b")
)
WAITS = RetainedOrphans("digest", None, 2, 20, NOW_MS - 9 * DAY_MS, NOW_MS - 9 * DAY_MS, ("/t/data/c",))


def shown(data: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The records of a check, or of the materialization below its card."""
    value = data[name]
    return value if isinstance(value, list) else value.data


def test_check_and_materialization_show_what_a_sweep_would_remove_before_it_does(world: World) -> None:
    unlogged = UnloggedMetadata(0, ())
    world.orphans.work = OrphanWork(
        10, 100, 7, 70, trashed_files=7, retained=(HELD, WAITS), unlogged=unlogged
    )
    world.observe()
    assert "would_remove" not in world.evaluations("orphan_files")[None].metadata
    housekeep(world)
    world.catalog.made[T].add("d1", 1)
    world.observe()
    assert world.orphans.swept == [True]  # storage was asked by the pass alone
    checked = {k: v.value for k, v in world.evaluations("orphan_files")[None].metadata.items()}
    # Dagster draws a table at its full width, and the card above it does not wrap.
    assert isinstance(told(world)[-1]["would_remove"], list)
    for data in (told(world)[-1], checked):
        assert (data["would_remove_files"], data["would_remove_mib"]) == (9, 8.583e-05)
        [held, waits] = shown(data, "would_remove")
        assert (held["mark"], held["files"], held["size"]) == ("m1", 7, "70 B")
        assert (held["written from"], held["written to"]) == ("2027-01-06 08:00 UTC", "2027-01-07 08:00 UTC")
        assert (held["swept from"], waits["swept from"]) == ("2027-01-18 08:00 UTC", "once approved")
        assert [r["path"] for r in shown(data, "would_remove_paths")] == [
            "/t/data/a",
            "/t/data/b",
            "/t/data/c",
        ]
    assert checked["last_scan"].startswith("IMPROVED, orphan_files: ")
    assert checked["orphan_files"] == 7
    assert "unlogged_metadata_files" not in checked
    described = world.evaluations("orphan_files")[None].description
    assert described.endswith("9 files are in the trash or wait for approval.")
    assert checked["looked_for_orphans"] > 0


def test_check_reports_the_sign_of_a_second_owner_that_the_last_pass_saw(world: World) -> None:
    world.orphans.work = OrphanWork(
        10, 100, 0, 0, unlogged=UnloggedMetadata(2, ("/t/metadata/b", "/t/metadata/a"))
    )
    world.observe()
    housekeep(world)
    world.catalog.made[T].add("d1", 1)
    world.observe()
    check = world.evaluations("orphan_files")[None]
    assert (
        "2 metadata files in the table's folder are not in its metadata log, the newest is /t/metadata/b"
        in check.description
    )
    assert check.metadata["unlogged_metadata_files"].value == 2
    assert check.passed


def test_run_without_a_pass_of_its_own_shows_what_the_last_one_left(world: World) -> None:
    world.orphans.work = OrphanWork(10, 100, 7, 70, trashed_files=7, retained=(HELD,))
    world.observe()
    housekeep(world)
    housekeep(world)
    assert told(world)[-1]["remove_orphan_files"].startswith("NO_OP, healthy: ")
    assert told(world)[-1]["would_remove_files"] == 7


def test_trash_that_could_not_be_read_is_not_shown_as_empty(world: World) -> None:
    world.orphans.work = OrphanWork(10, 100, 7, 70, trashed_files=7, retained=None)
    world.observe()
    housekeep(world)
    assert not [name for name in told(world)[-1] if name.startswith("would_remove")]


def test_orphan_check_invents_no_age_and_says_afterwards_that_storage_was_searched(world: World) -> None:
    world.observe()
    check = world.evaluations("orphan_files")[None]
    assert check.description == (
        "No search for orphan files has ended with success yet (remove_orphan_files.every_seconds)"
    )
    assert "orphan_scan_age_seconds" not in check.metadata
    housekeep(world)
    assert told(world)[-1]["remove_orphan_files"] == (
        "NO_OP, orphan_files: storage was searched for orphan files"
    )
    check = world.evaluations("orphan_files")[None]
    assert (check.passed, check.description) == (True, "Storage was searched for orphan files recently.")
    world.clock.sleep(8 * 86_400)
    world.observe(changed_only=False)
    assert world.evaluations("orphan_files")[None].description.startswith("orphan_scan_age_seconds is 69")


def test_clocks_that_disagree_start_no_run_that_removes(world: World) -> None:
    world.ledger.health.put(world.catalog.measure(world.catalog.pin(T), world.policy.rewrite_data_files))
    operations = (Operation.REWRITE_MANIFESTS, Operation.EXPIRE_SNAPSHOTS, Operation.REMOVE_ORPHAN_FILES)
    assert read_due_work(world.context, [T])[T].allowed == operations
    world.ledger.leases.keep_clock_reading(None, None, world.clock.ms + 301_000)
    assert read_due_work(world.context, [T])[T].allowed == (Operation.REWRITE_MANIFESTS,)


def test_context_on_a_session_of_dagster_reads_the_clock_of_the_store(world: World) -> None:
    context = changed(world.context, store_now_ms=lambda _state: 7).on_session(object)
    assert context.storage.now_ms(world.catalog.pin(T)) == 7


def test_refused_orphan_pass_fails_the_run_with_its_code(world: World) -> None:
    world.orphans.work = OrphanWork(
        9, 90, 0, 0, stopped=RefusedError("ICM-111", "lake.db.u cannot be read.", "repair it.")
    )
    world.observe()
    result = housekeep(world)
    [failure] = [e for e in result.all_events if e.event_type is dg.DagsterEventType.STEP_FAILURE]
    assert "ICM-111 lake.db.u cannot be read" in str(failure.event_specific_data)


def test_card_of_housekeeping_does_not_call_due_data_healthy(world: World) -> None:
    world.catalog.made[T].add("d2", 8)
    world.observe()
    assert housekeep(world).success
    assert told(world)[-1]["card"].startswith("**1 of 2 partitions is beyond a threshold.**")
