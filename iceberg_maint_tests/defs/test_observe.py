"""The observe job: partition keys, observations, checks, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import TOKEN_PROPERTY, FileKind
from iceberg_maint.core.policy.housekeeping import AttestLevel, AttestPolicy
from iceberg_maint.defs.assets.metadata import WORST_PARTITIONS
from iceberg_maint.defs.instance import busy_assets, check_instance
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.errors import RefusedError
from iceberg_maint.loop.attest import accept
from iceberg_maint_tests.defs.conftest import World, key

pytestmark = pytest.mark.slow

NAMES = IcebergTranslator()

T = "lake.db.t"
TABLE = TableId.parse(T)


def known_keys(world: World) -> list[str]:
    return list(world.instance.get_dynamic_partitions(NAMES.get_partitions_name(TABLE)))


def observations(world: World) -> list[dg.AssetObservation]:
    return [
        e.asset_observation
        for e in world.events(dg.DagsterEventType.ASSET_OBSERVATION)
        if e.asset_observation.asset_key == NAMES.get_asset_key(TABLE)
    ]


def table_level(world: World) -> list[dict[str, Any]]:
    return [dict(o.metadata) for o in observations(world) if o.partition is None]


def test_partition_keys_appear_at_once_in_order(world: World) -> None:
    table = world.catalog.create("db.t")
    for day in ("d3", "d1", "d2"):
        table.add(day, 1)
    world.observe()
    assert known_keys(world) == [key("d1"), key("d2"), key("d3")]


def test_partition_key_is_retired_after_two_observations_without_it(world: World) -> None:
    table = world.catalog.create("db.t")
    table.add("d1", 1)
    table.add("d2", 1)
    world.observe()
    table.drop("d1")
    world.observe()
    assert known_keys(world) == [key("d1"), key("d2")]
    table.add("d2", 1)
    world.observe()
    assert known_keys(world) == [key("d2")]


def test_partition_keys_survive_a_table_that_cannot_be_read(world: World) -> None:
    table = world.catalog.create("db.t")
    world.catalog.create("db.other").add("d1", 1)
    table.add("d1", 1)
    table.add("d2", 1)
    world.observe()
    table.drop("d1")
    world.catalog.unreadable.add(T)
    for _ in range(3):
        world.observe(changed_only=False)
    assert known_keys(world) == [key("d1"), key("d2")]


def test_partition_keys_survive_an_empty_table(world: World) -> None:
    table = world.catalog.create("db.t")
    table.add("d1", 1)
    world.observe()
    table.drop("d1")
    for _ in range(3):
        world.observe(changed_only=False)
    assert known_keys(world) == [key("d1")]


def test_partition_key_is_not_retired_under_an_unfinished_run(world: World) -> None:
    table = world.catalog.create("db.t")
    table.add("d1", 1)
    table.add("d2", 1)
    world.observe()
    run = world.instance.create_run_for_job(
        world.definitions.resolve_implicit_global_asset_job_def(),
        asset_selection={NAMES.get_asset_key(TABLE)},
        status=dg.DagsterRunStatus.STARTED,
        tags={"dagster/partition": key("d1")},
    )
    table.drop("d1")
    world.observe()
    table.add("d2", 1)
    world.observe()
    assert known_keys(world) == [key("d1"), key("d2")]
    world.instance.report_run_failed(run)
    world.observe(changed_only=False)
    assert known_keys(world) == [key("d2")]


def test_unfinished_runs_are_read_once_when_a_key_is_to_be_retired(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []

    def noted(instance: dg.DagsterInstance) -> Callable[[dg.AssetKey], bool]:
        reads.append(len(known_keys(world)))
        return busy_assets(instance)

    monkeypatch.setattr("iceberg_maint.defs.runs.table_report.busy_assets", noted)
    tables = [world.catalog.create("db.t"), world.catalog.create("db.u")]
    for table in tables:
        table.add("d1", 1)
        table.add("d2", 1)
    world.observe()
    for table in tables:
        table.drop("d1")
    world.observe()
    assert reads == []
    for table in tables:
        table.add("d2", 1)
    world.observe()
    assert (reads, known_keys(world)) == ([2], [key("d2")])


def test_unreadable_table_is_reported_and_stops_no_other(world: World) -> None:
    world.catalog.create("db.t").add("d1", 1)
    world.catalog.create("db.u").add("d1", 1)
    world.catalog.unreadable.add(T)
    assert world.observe().success
    assert world.ledger.health.get(TableId.parse("lake.db.u")) is not None
    [metadata] = table_level(world)
    assert "manifest m1 holds 3 entries, not 4" in metadata["error"].value
    failed = [
        e
        for e in world.events(dg.DagsterEventType.ASSET_CHECK_EVALUATION)
        if e.check_name == "no_progress" and not e.passed
    ]
    assert [e.asset_key for e in failed] == [NAMES.get_asset_key(TABLE)]


def test_observing_fails_when_nothing_could_be_read(world: World) -> None:
    world.catalog.create("db.t").add("d1", 1)
    world.catalog.unreadable.add(T)
    assert not world.observe().success


@pytest.mark.parametrize("asked", [None, [T]], ids=["all", "the-broken-one"])
def test_observing_does_not_fail_for_broken_tables_beside_good_ones_that_did_not_change(
    world: World, asked: list[str] | None
) -> None:
    world.catalog.create("db.t").add("d1", 1)
    world.catalog.create("db.u").add("d1", 1)
    world.catalog.unreadable.add(T)
    assert world.observe(tables=["lake.db.u"]).success
    for _ in range(2):
        assert world.observe(tables=asked).success


def test_observing_fails_when_the_catalog_is_silent_whatever_was_read_before(world: World) -> None:
    for name in ("db.t", "db.u"):
        world.catalog.create(name).add("d1", 1)
    assert world.observe().success
    definitions = world.definitions
    world.catalog.unreachable = True
    assert not world.observe(tables=[T], definitions=definitions).success


def test_unchanged_table_is_left_alone_until_asked_or_long_ago(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.catalog.create("db.t").add("d1", 1)
    for expected, changed_only in ((1, True), (1, True), (2, False)):
        world.observe(changed_only=changed_only)
        assert len(table_level(world)) == expected
    monkeypatch.setattr("iceberg_maint.defs.runs.observe_job.OBSERVE_AGAIN_AFTER_MS", 0)
    world.observe()
    assert len(table_level(world)) == 3


def test_table_unknown_to_a_new_dagster_instance_is_observed(world: World) -> None:
    world.catalog.create("db.t").add("d1", 1)
    world.observe()
    with dg.DagsterInstance.ephemeral() as fresh:
        world.instance = fresh
        world.observe()
        assert known_keys(world) == [key("d1")]


def test_only_the_named_tables_are_observed(world: World) -> None:
    for name in ("db.t", "db.u"):
        world.catalog.create(name).add("d1", 1)
    world.observe(tables=["lake.db.u", "lake.db.nosuch"])
    assert [str(k.table) for k in world.ledger.health.known_tables()] == ["lake.db.u"]


def test_observations_are_few_and_the_table_comes_last_under_its_own_labels(world: World) -> None:
    table = world.catalog.create("db.t")
    for day in range(WORST_PARTITIONS + 5):
        table.add(f"d{day:02d}", 8)
    world.observe()
    *of_partitions, last = observations(world)
    assert len(of_partitions) == WORST_PARTITIONS
    assert all(o.partition for o in of_partitions)
    assert last.partition is None
    numbers = {
        k: v.value
        for k, v in last.metadata.items()
        if isinstance(v, (dg.IntMetadataValue, dg.FloatMetadataValue))
    }
    assert numbers["small_files"] == 8 * (WORST_PARTITIONS + 5)
    assert numbers["unhealthy_partitions"] == WORST_PARTITIONS + 5
    assert not set(last.metadata) & set(of_partitions[0].metadata)
    assert len(last.metadata["worst_partitions"].data) == WORST_PARTITIONS
    # Dagster widens the page to the longest word, and cuts the card.
    texts = [v.text for v in last.metadata.values() if isinstance(v, dg.TextMetadataValue)]
    assert table.state.metadata_location not in texts
    assert last.metadata["metrics"].data["metadata_location"] == table.state.metadata_location


def test_passing_check_shows_what_it_compares(world: World) -> None:
    rewrite = replace(
        world.policy.rewrite_data_files, delete_ratio_warn=0.1, delete_ratio_act=0.3, max_delete_files=10
    )
    world.policy = replace(world.policy, rewrite_data_files=rewrite)
    table = world.catalog.create("db.t")
    table.add("d1", 8)
    table.add("d2", 2)
    world.observe()
    world.maintain(T, key("d1"), key("d2"))

    def numbers(check: str, day: str) -> dict[str, float]:
        evaluation = world.evaluations(check)[key(day)]
        assert evaluation.passed
        assert all(isinstance(v, dg.FloatMetadataValue) for v in evaluation.metadata.values())
        return {k: v.value for k, v in evaluation.metadata.items()}

    assert numbers("small_files", "d2") == {"small_files": 2, "small_files_threshold": 5}
    assert numbers("delete_files", "d2") == {
        "delete_ratio": 0,
        "delete_ratio_threshold": 0.1,
        "delete_files": 0,
        "delete_files_threshold": 10,
        "applicable_equality_delete_files": 0,
        "applicable_equality_delete_files_threshold": 1,
        "dangling_equality_delete_files": 0,
        "dangling_equality_delete_files_threshold": 1,
        "mergeable_delete_files": 0,
        "mergeable_delete_files_threshold": 5,
        "dangling_position_delete_files": 0,
        "dangling_position_delete_files_threshold": 1,
    }


def test_each_evaluation_of_a_healthy_table_has_a_number_to_plot(world: World) -> None:
    world.catalog.create("db.t").add("d1", 1)
    world.observe()
    evaluations = world.events(dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    assert len({e.check_name for e in evaluations}) > 8
    assert [
        e.check_name
        for e in evaluations
        if not any(isinstance(v, (dg.IntMetadataValue, dg.FloatMetadataValue)) for v in e.metadata.values())
    ] == []


def test_check_that_only_warns_says_so(world: World) -> None:
    rewrite = replace(world.policy.rewrite_data_files, delete_ratio_warn=0.1, delete_ratio_act=0.9)
    world.policy = replace(world.policy, rewrite_data_files=rewrite)
    table = world.catalog.create("db.t")
    table.add("d1", 2)
    table.add("d1", 1, FileKind.POSITION_DELETES)
    world.observe()
    check = world.evaluations("delete_files")[key("d1")]
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert check.description.startswith("warning, not due; delete_ratio is 0.5, threshold 0.1 ")


def test_check_already_shown_is_not_evaluated_again(world: World) -> None:
    world.catalog.create("db.t").add("d1", 8)
    for _ in range(3):
        world.observe(changed_only=False)
    events = world.events(dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    assert len([e for e in events if e.check_name == "small_files"]) == 1


def test_partition_healed_by_somebody_else_passes_at_the_next_observation(world: World) -> None:
    table = world.catalog.create("db.t")
    table.add("d1", 8)
    world.observe()
    assert not world.evaluations("small_files")[key("d1")].passed
    table.drop("d1")
    table.add("d1", 1)
    world.observe()
    assert world.evaluations("small_files")[key("d1")].passed


def test_partition_that_became_unhealthy_after_maintenance_fails_against_that_materialization(
    world: World,
) -> None:
    table = world.catalog.create("db.t")
    table.add("d1", 8)
    world.observe()
    world.maintain(T, key("d1"))
    table.add("d1", 8)
    world.observe()
    ids = world.instance.get_latest_storage_id_by_partition(
        NAMES.get_asset_key(TABLE), dg.DagsterEventType.ASSET_MATERIALIZATION, partitions={key("d1")}
    )
    evaluation = world.evaluations("small_files")[key("d1")]
    assert not evaluation.passed
    assert evaluation.target_materialization_data.storage_id == ids[key("d1")]


def test_dropped_table_is_forgotten(world: World) -> None:
    world.catalog.create("db.t").add("d1", 1)
    world.catalog.create("db.u").add("d1", 1)
    world.observe()
    definitions = world.definitions
    del world.catalog.content[TABLE]
    world.observe(changed_only=False, definitions=definitions)
    assert [str(k.table) for k in world.ledger.health.known_tables()] == ["lake.db.u"]


def test_pools_are_known_before_the_first_maintenance(tmp_path: Any) -> None:
    with dg.DagsterInstance.local_temp(
        str(tmp_path), overrides={"concurrency": {"pools": {"default_limit": 1, "granularity": "run"}}}
    ) as instance:
        world = World(tmp_path, instance)
        world.catalog.create("db.t").add("d1", 1)
        assert world.observe().success
        limits = {p.name: p.limit for p in instance.event_log_storage.get_pool_limits()}
        assert limits == {NAMES.get_pool(TABLE): 1}


@pytest.mark.parametrize(
    ("monitoring", "code"),
    [
        ({"enabled": False, "free_slots_after_run_end_seconds": 60}, "ICM-117"),
        ({"enabled": True}, "ICM-117"),
    ],
)
def test_instance_that_would_block_after_a_crash_is_refused(monitoring: dict[str, Any], code: str) -> None:
    with (
        dg.DagsterInstance.ephemeral(settings={"run_monitoring": monitoring}) as instance,
        pytest.raises(RefusedError) as refused,
    ):
        check_instance(instance)
    assert refused.value.code == code


@pytest.mark.parametrize(("runs", "allowed"), [(1, True), (4, False)])
def test_instance_on_sqlite_is_refused_more_than_one_run(tmp_path: Any, runs: int, allowed: bool) -> None:
    overrides = {
        "concurrency": {"runs": {"max_concurrent_runs": runs}},
        "run_monitoring": {"enabled": True, "free_slots_after_run_end_seconds": 60},
    }
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides=overrides) as instance:
        if allowed:
            check_instance(instance)
        else:
            with pytest.raises(RefusedError, match="ICM-116"):
                check_instance(instance)


def evaluations(world: World, check: str) -> int:
    events = world.events(dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    return sum(e.check_name == check for e in events)


def test_check_of_a_whole_table_is_stored_again_only_with_another_result(world: World) -> None:
    table = world.catalog.create("db.t")
    table.add("d1", 1)
    checks = ("quarantine", "no_progress", "manifests", "snapshots", "orphan_files")
    for _ in range(3):
        assert world.observe(changed_only=False).success
    assert [evaluations(world, check) for check in checks] == [1] * 5
    world.catalog.unreadable.add(T)
    world.observe(changed_only=False)
    world.catalog.unreadable.clear()
    world.observe(changed_only=False)
    # The end of a fault is a new card of the table, and the checks of its asset are stored with it.
    assert [evaluations(world, check) for check in checks] == [2, 3, 1, 1, 1]
    assert world.evaluations("no_progress")[None].passed


def test_check_that_a_materialization_made_old_is_stored_again(world: World) -> None:
    world.catalog.create("db.t").add("d1", 1)
    world.observe(changed_only=False)
    world.instance.report_runless_asset_event(
        dg.AssetMaterialization(NAMES.get_asset_key(TABLE), partition=key("d1"))
    )
    world.observe(changed_only=False)
    assert [evaluations(world, check) for check in ("quarantine", "manifests")] == [2, 1]


def test_check_that_is_planned_without_a_result_is_stored_again(world: World) -> None:
    world.catalog.create("db.t").add("d1", 1)
    world.observe(changed_only=False)
    asset = NAMES.get_housekeeping_key(TABLE)
    job = world.definitions.resolve_implicit_global_asset_job_def().get_subset(asset_selection={asset})
    run = world.instance.create_run_for_job(job, asset_selection={asset})
    world.instance.report_run_failed(run)
    world.observe(changed_only=False)
    assert [evaluations(world, check) for check in ("quarantine", "manifests")] == [1, 2]


def attested(world: World) -> tuple[bool, str, str]:
    last = world.evaluations("maintenance_attested")[None]
    return last.passed, last.severity.value, last.description


def test_replace_that_lost_a_file_fails_the_check_until_a_person_accepts(world: World) -> None:
    table = world.catalog.create("db.t")
    table.add("d1", 3)
    world.observe()
    assert attested(world)[0] is True
    bad = table.commit([table.files[0].path], (), {TOKEN_PROPERTY: "another program's"})
    world.observe()
    passed, severity, text = attested(world)
    assert (passed, severity) == (False, "ERROR")
    assert f"Snapshot {bad.snapshot_id} by iceberg_maint (installation ?) is RED: row_count: 10 rows" in text
    accept(table.state, bad.snapshot_id, world.context)
    table.add("d1", 1)
    world.observe()
    assert attested(world)[0] is True


def test_replace_that_keeps_the_counts_passes_and_waits_if_the_policy_reads_files(world: World) -> None:
    table = world.catalog.create("db.t")
    world.policy = replace(world.policy, attest=AttestPolicy(level=AttestLevel.FILES))
    table.add("d1", 2)
    world.observe()
    whole = replace(table.files[0], path="whole.parquet", record_count=20)
    table.commit([f.path for f in table.files], (whole,), {TOKEN_PROPERTY: "another program's"})
    world.observe()
    passed, _, text = attested(world)
    assert (passed, text.rpartition("read. ")[2]) == (True, "1 commit waits for the next attestation.")
