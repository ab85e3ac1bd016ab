"""The table-changed sensor and the schedule: what they ask for, and what they leave alone."""

from __future__ import annotations

import warnings
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_origin import (
    ManagedGrpcPythonEnvCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster_graphql import (
    DagsterGraphQLClientError,
    ReloadRepositoryLocationInfo,
    ReloadRepositoryLocationStatus,
)

from iceberg_maint.config import load_config
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.policy.housekeeping import HealthPolicy, HealthSource
from iceberg_maint.defs.assets.table_checks import NOT_MEASURED
from iceberg_maint.defs.automation import maintenance_sensor
from iceberg_maint.defs.automation.conditions import MaintenanceDue
from iceberg_maint.defs.automation.maintenance_sensor import TABLES_PER_SENSOR, build_automation_sensors
from iceberg_maint.defs.automation.observations import store_run
from iceberg_maint.defs.automation.sensors import follow_table_list, tick_interval
from iceberg_maint.defs.automation.tick_observation import TickObservation, observe_config
from iceberg_maint.defs.code_location import (
    BY_HAND,
    ConfigurationFile,
    read_table_list,
    reload_location,
    write_table_list,
)
from iceberg_maint.defs.load_definitions import definitions_from
from iceberg_maint.defs.names import IN_TICK_TAG, OBSERVE_JOB, TABLE_TAG
from iceberg_maint.defs.runs.observe_job import OBSERVE_AGAIN_AFTER_MS
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.errors import RefusedError
from iceberg_maint.loop.assess import assess
from iceberg_maint.report.formatting import moment
from iceberg_maint_tests.defs.conftest import NAMES, SETTINGS, World, key

pytestmark = pytest.mark.slow

T = TableId.parse("lake.db.t")
U = TableId.parse("lake.db.u")
WHY = "the table list changed"


def sensor_tick(
    world: World,
    definitions: dg.Definitions | None = None,
    name: str = "table_changes",
    cursor: str | None = None,
) -> Any:
    repository = (definitions or world.definitions).get_repository_def()
    sensor = repository.get_sensor_def(name)
    with dg.build_sensor_context(
        instance=world.instance, sensor_name=name, repository_def=repository, cursor=cursor
    ) as context:
        return sensor.evaluate_tick(context)


def requested(tick: Any) -> list[list[str]]:
    return [r.run_config["ops"]["observe_tables"]["config"]["tables"] for r in tick.run_requests]


def observed(world: World) -> list[str]:
    """The tables of each observe run in the process of a sensor, oldest first."""
    runs = world.instance.get_runs(dg.RunsFilter(job_name=OBSERVE_JOB))
    return [r.tags[TABLE_TAG] for r in reversed(runs) if IN_TICK_TAG in r.tags]


def follow(world: World, loaded: tuple[TableId, ...], reloads: list[int] | None = None) -> list[str]:
    def reload() -> str:
        if reloads is not None:
            reloads.append(1)
        return "reloaded"

    return follow_table_list(loaded, world.context, world.table_list, lambda _table: True, reload)


def test_tick_requests_new_and_changed_tables_only(world: World) -> None:
    table = world.catalog.create("db.t")
    table.add("d1", 1)
    world.catalog.create("db.u").add("d1", 1)
    assert requested(sensor_tick(world)) == [["lake.db.t", "lake.db.u"]]
    world.observe()
    assert requested(sensor_tick(world)) == []
    table.add("d1", 1)
    assert (requested(sensor_tick(world)), observed(world)) == ([], ["lake.db.t"])
    assert (requested(sensor_tick(world)), observed(world)) == ([], ["lake.db.t"])


def test_tick_of_the_automation_observes_a_commit_and_requests_its_partition(world: World) -> None:
    table = world.catalog.create("db.t")
    table.add("d1", 1)
    world.observe()
    table.add("d1", 8)
    tick = sensor_tick(world, name="due_maintenance")
    assert [r.partition_key for r in tick.run_requests] == [key("d1")]
    assert observed(world) == ["lake.db.t"]
    assert not world.evaluations("small_files")[key("d1")].passed
    assert (requested(sensor_tick(world)), observed(world)) == ([], ["lake.db.t"])


def test_change_of_many_tables_partitions_or_files_is_observed_by_a_run_of_its_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = world.catalog.create("db.t")
    table.add("d1", 1)
    table.add("d2", 1)
    world.observe()
    table.add("d1", 1)
    for limit in ("TABLES_PER_TICK", "PARTITIONS_PER_TICK", "FILES_PER_TICK"):
        with monkeypatch.context() as patch:
            patch.setattr(f"iceberg_maint.defs.automation.tick_observation.{limit}", 0)
            assert (requested(sensor_tick(world)), observed(world)) == ([["lake.db.t"]], [])


def test_change_of_a_table_that_spark_measures_is_observed_by_a_run_of_its_own(world: World) -> None:
    table = world.catalog.create("db.t")
    table.add("d1", 1)
    world.observe()
    table.add("d1", 1)
    world.policy = replace(world.policy, health=HealthPolicy(HealthSource.SPARK))
    assert (requested(sensor_tick(world)), observed(world)) == ([["lake.db.t"]], [])


def test_change_under_a_launcher_that_watches_workers_is_observed_by_a_run_of_its_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = world.catalog.create("db.t")
    table.add("d1", 1)
    world.observe()
    table.add("d1", 1)
    launcher = type(world.instance.run_launcher)
    monkeypatch.setattr(launcher, "supports_check_run_worker_health", True)
    assert (requested(sensor_tick(world)), observed(world)) == ([["lake.db.t"]], [])


def test_observation_in_a_tick_captures_no_output_of_the_code_server(tmp_path: Path) -> None:
    overrides = {**SETTINGS, "concurrency": {"runs": {"max_concurrent_runs": 1}}}
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides=overrides) as instance:
        world = World(tmp_path, instance)
        table = world.catalog.create("db.t")
        table.add("d1", 1)
        world.observe()
        before = set(tmp_path.rglob("*.err"))
        table.add("d1", 8)
        assert (requested(sensor_tick(world)), observed(world)) == ([], ["lake.db.t"])
        assert len(before) == 1
        assert set(tmp_path.rglob("*.err")) == before
        assert not world.evaluations("small_files")[key("d1")].passed


def test_table_that_a_tick_cannot_read_is_tried_once_in_ten_minutes(world: World) -> None:
    table = world.catalog.create("db.t")
    table.add("d1", 1)
    world.observe()
    table.add("d1", 1)
    world.catalog.unreadable.add("lake.db.t")
    definitions = world.definitions
    ticks = [requested(sensor_tick(world, definitions)) for _ in range(3)]
    assert (ticks, observed(world)) == ([[["lake.db.t"]]] * 3, ["lake.db.t"])
    assert "ICM-101" in world.evaluations("no_progress")[None].description
    world.clock.sleep(601)
    sensor_tick(world, definitions)
    assert observed(world) == ["lake.db.t"] * 2


def slow(world: World, monkeypatch: pytest.MonkeyPatch, name: str, seconds: float) -> list[int]:
    """Lets each call of this method of the catalog or the ledger take that long by the clock. Returns the numbers of tables
    asked."""
    owner: Any = world.catalog if hasattr(world.catalog, name) else world.ledger.health
    call, asked = getattr(owner, name), []

    def called(tables: Any) -> Any:
        asked.append(len(list(tables)))
        world.clock.sleep(seconds)
        return call(tables)

    monkeypatch.setattr(owner, name, called, raising=False)
    return asked


def test_look_at_changes_ends_with_the_time_of_its_tick_and_the_next_tick_goes_on_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"db.{letter}" for letter in "abcde"]
    for name in names:
        world.catalog.create(name).add("d1", 1)
    monkeypatch.setattr("iceberg_maint.defs.automation.tick_observation._TABLES_AT_FIRST", 1)
    asked = slow(world, monkeypatch, "pointers", seconds=3)
    ticks, cursor, seconds = [], None, []
    for _ in range(4):
        began = world.clock.monotonic_seconds()
        tick = sensor_tick(world, cursor=cursor)
        seconds.append(world.clock.monotonic_seconds() - began)
        ticks.append(requested(tick))
        cursor = tick.cursor
    assert ticks == [
        [["lake.db.a", "lake.db.b"]],
        [["lake.db.c", "lake.db.d"]],
        [["lake.db.e"]],
        [["lake.db.a", "lake.db.b"]],
    ]
    assert (seconds, set(asked)) == ([6, 6, 3, 6], {1})


def test_tables_are_shown_as_not_measured_as_long_as_the_tick_has_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("db.a", "db.b", "db.c"):
        world.catalog.create(name).add("d1", 1)
    monkeypatch.setattr("iceberg_maint.defs.automation.sensors._UNMEASURED_AT_ONCE", 1)
    instance_type, shown_tables = type(world.instance), []
    store = instance_type.report_runless_asset_event

    def slow_store(self: dg.DagsterInstance, event: Any) -> None:
        world.clock.sleep(2)
        shown_tables.append(event.asset_key.path[-1])
        store(self, event)

    monkeypatch.setattr(instance_type, "report_runless_asset_event", slow_store)
    ticks = []
    for _ in range(3):
        assert requested(sensor_tick(world)) == [["lake.db.a", "lake.db.b", "lake.db.c"]]
        ticks.append(sorted(set(shown_tables)))
        shown_tables.clear()
    assert ticks == [["a", "b"], ["c"], []]


def test_tick_requests_as_many_tables_as_a_run_may_have_and_goes_on_after_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iceberg_maint.defs.automation.sensors.TABLES_PER_RUN", 2)
    for name in ("db.a", "db.b", "db.c"):
        world.catalog.create(name).add("d1", 1)
    first = sensor_tick(world)
    second = sensor_tick(world, cursor=first.cursor)
    assert (requested(first), first.cursor) == ([["lake.db.a", "lake.db.b"]], "lake.db.c")
    assert (requested(second), second.cursor) == ([["lake.db.c"]], "the lists of the catalogs")


def test_tick_that_goes_on_does_not_list_the_catalog_and_a_table_that_is_gone_begins_again(
    world: World,
) -> None:
    for name in ("db.a", "db.b"):
        world.catalog.create(name).add("d1", 1)
    definitions = world.definitions
    world.catalog.create("db.c")
    assert requested(sensor_tick(world, definitions, cursor="lake.db.b")) == [["lake.db.b"]]
    assert read_table_list(world.table_list) is None
    assert requested(sensor_tick(world, definitions, cursor="lake.db.x")) == [["lake.db.a", "lake.db.b"]]
    assert read_table_list(world.table_list) is not None


def test_cursor_stays_while_an_observe_run_is_under_way(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iceberg_maint.defs.automation.sensors.TABLES_PER_RUN", 1)
    for name in ("db.a", "db.b"):
        world.catalog.create(name).add("d1", 1)
    world.instance.create_run_for_job(
        world.definitions.resolve_job_def(OBSERVE_JOB), status=dg.DagsterRunStatus.STARTED
    )
    tick = sensor_tick(world, cursor="lake.db.b")
    assert (requested(tick), tick.cursor) == ([], "lake.db.b")


def test_pause_of_a_fleet_reads_the_health_of_few_tables_in_a_tick(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for letter in "abcdef":
        world.catalog.create(f"db.{letter}").add("d1", 1)
    world.observe()
    world.ledger.registry.pause("*", "catalog moves", "ben")
    read: list[TableId] = []
    get = world.ledger.health.get

    def counted(table: TableId) -> Any:
        read.append(table)
        return get(table)

    monkeypatch.setattr(world.ledger.health, "get", counted, raising=False)
    assert requested(sensor_tick(world)) == [[f"lake.db.{letter}" for letter in "abcdef"]]
    assert read == []


def test_automation_reads_the_due_work_of_as_many_tables_as_its_tick_has_time_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for letter in "abcde":
        world.catalog.create(f"db.{letter}").add("d1", 8)
    world.observe()
    monkeypatch.setattr(maintenance_sensor, "_TABLES_AT_FIRST", 1)
    monkeypatch.setattr("iceberg_maint.defs.automation.maintenance_sensor.TABLES_PER_SHARED_RUN", 1)
    slow(world, monkeypatch, "get_all", seconds=3)
    definitions = world.definitions
    ticks = [tables_requested(sensor_tick(world, definitions, "due_maintenance")) for _ in range(3)]
    assert ticks == [["a", "b"], ["c", "d"], ["a", "e"]]


def test_automation_evaluates_as_many_tables_as_fit_by_the_time_of_earlier_ticks_and_the_others_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for letter in "abcd":
        world.catalog.create(f"db.{letter}").add("d1", 8)
    world.observe()
    monkeypatch.setattr("iceberg_maint.defs.automation.maintenance_sensor.TABLES_PER_SHARED_RUN", 1)
    evaluate = MaintenanceDue.evaluate

    def slow_evaluation(self: MaintenanceDue, context: Any) -> Any:
        world.clock.sleep(2)
        return evaluate(self, context)

    monkeypatch.setattr(MaintenanceDue, "evaluate", slow_evaluation)
    definitions = world.definitions
    ticks = [tables_requested(sensor_tick(world, definitions, "due_maintenance")) for _ in range(3)]
    assert ticks == [["a", "b", "c", "d"], ["a", "b"], ["c", "d"]]


def tables_requested(tick: Any) -> list[str]:
    """The names of the tables whose assets the runs of a tick select."""
    return sorted(k.path[-1] for r in tick.run_requests for k in r.asset_selection or ())


def test_tick_repeated_asks_under_the_same_run_key_until_its_time_is_over(world: World) -> None:
    world.catalog.create("db.t").add("d1", 1)
    first, again = sensor_tick(world), sensor_tick(world)
    assert first.run_requests[0].run_key == again.run_requests[0].run_key
    world.clock.sleep(601)
    assert sensor_tick(world).run_requests[0].run_key != first.run_requests[0].run_key


def test_tick_waits_while_an_observe_run_is_under_way(world: World) -> None:
    world.catalog.create("db.t").add("d1", 1)
    world.instance.create_run_for_job(
        world.definitions.resolve_job_def(OBSERVE_JOB), status=dg.DagsterRunStatus.STARTED
    )
    assert requested(sensor_tick(world)) == []


@pytest.mark.parametrize(
    ("tables", "asked"), [(["lake.db.u"], [["lake.db.t"]]), (["lake.db.t", "lake.db.u"], []), ([], [])]
)
def test_tick_waits_for_observe_runs_of_its_own_tables_only(
    world: World, tables: list[str], asked: list[list[str]]
) -> None:
    world.catalog.create("db.t").add("d1", 1)
    definitions = world.definitions
    world.instance.create_run_for_job(
        definitions.resolve_job_def(OBSERVE_JOB),
        run_config=observe_config([TableId.parse(t) for t in tables]),
        status=dg.DagsterRunStatus.STARTED,
    )
    assert requested(sensor_tick(world, definitions)) == asked


@pytest.mark.parametrize(("slots", "asked"), [(1, []), (2, []), (3, [["lake.db.t"]])])
def test_observe_runs_of_other_locations_leave_a_slot_to_maintenance(
    tmp_path: Path, slots: int, asked: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "iceberg_maint.defs.automation.sensors.check_instance", lambda _instance: None
    )  # of SQLite
    overrides = {**SETTINGS, "concurrency": {"runs": {"max_concurrent_runs": slots}}}
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides=overrides) as instance:
        world = World(tmp_path, instance)
        world.catalog.create("db.t").add("d1", 1)
        instance.create_run_for_job(
            world.definitions.resolve_job_def(OBSERVE_JOB),
            run_config=observe_config([U]),
            status=dg.DagsterRunStatus.STARTED,
        )
        assert requested(sensor_tick(world)) == asked


def test_tick_under_an_unsafe_instance_is_refused(world: World) -> None:
    with dg.DagsterInstance.ephemeral() as unsafe:
        world.instance = unsafe
        with pytest.raises(RefusedError, match="ICM-117"):
            sensor_tick(world)


def test_tick_with_a_silent_catalog_requests_nothing_and_says_why(world: World) -> None:
    world.catalog.create("db.t").add("d1", 1)
    definitions = world.definitions
    world.catalog.unreachable = True
    tick = sensor_tick(world, definitions)
    assert tick.run_requests == []
    assert "ICM-104" in tick.skip_message


def test_new_table_enters_the_list_and_asks_for_a_reload(world: World) -> None:
    world.catalog.create("db.t")
    write_table_list(world.table_list, [T])
    world.catalog.create("db.u")
    reloads: list[int] = []
    assert follow(world, (T,), reloads) == ["new table lake.db.u", "reloaded"]
    assert read_table_list(world.table_list) == (T, U)
    assert follow(world, (T, U), reloads) == []
    assert reloads == [1]


def test_reload_is_asked_again_until_the_location_has_the_list(world: World) -> None:
    world.catalog.create("db.t")
    write_table_list(world.table_list, [T])
    assert follow(world, ()) == ["reloaded"]


def test_dropped_table_leaves_the_list_and_the_ledger(world: World) -> None:
    world.catalog.create("db.t").add("d1", 1)
    world.catalog.create("db.u").add("d1", 1)
    world.observe()
    write_table_list(world.table_list, [T, U])
    del world.catalog.content[U]
    assert follow(world, (T, U)) == ["table lake.db.u is no longer in its catalog", "reloaded"]
    assert read_table_list(world.table_list) == (T,)
    assert [k.table for k in world.ledger.health.known_tables()] == [T]


def test_renamed_table_keeps_its_history(world: World) -> None:
    table = world.catalog.create("db.t")
    table.add("d1", 1)
    world.observe()
    write_table_list(world.table_list, [T])
    world.catalog.rename(T, U)
    assert follow(world, (T,)) == [
        "new table lake.db.u",
        "table lake.db.t is no longer in its catalog",
        "reloaded",
    ]
    world.observe()
    [known] = world.ledger.health.known_tables()
    assert (known.table, known.table_uuid) == (U, table.state.uuid)


def test_silent_catalog_keeps_its_tables_in_the_list(world: World) -> None:
    world.catalog.create("db.t")
    write_table_list(world.table_list, [T])
    world.catalog.unreachable = True
    reloads: list[int] = []
    [message] = follow(world, (T,), reloads)
    assert message.startswith("catalog lake does not answer: ICM-104")
    assert read_table_list(world.table_list) == (T,)
    assert reloads == []


def test_unreadable_list_is_written_again(world: World) -> None:
    world.catalog.create("db.t")
    world.table_list.write_text("{", "utf-8")
    follow(world, (T,))
    assert read_table_list(world.table_list) == (T,)


def test_dropped_table_is_not_requested(world: World) -> None:
    world.catalog.create("db.t").add("d1", 1)
    world.catalog.create("db.u").add("d1", 1)
    definitions = world.definitions
    del world.catalog.content[U]
    assert requested(sensor_tick(world, definitions)) == [["lake.db.t"]]


def look(world: World) -> None:
    """What `tables`, `observe`, `plan` and `why` of the command line do: measure, and store the health."""
    for table in world.catalog.tables():
        assess(table, world.context)


def test_commit_turns_red_in_one_tick_although_the_command_line_measured_it_first(world: World) -> None:
    table = world.catalog.create("db.t")
    table.add("d1", 1)
    world.observe()
    assert requested(sensor_tick(world)) == []
    table.add("d1", 8)
    look(world)
    assert (requested(sensor_tick(world)), observed(world)) == ([], ["lake.db.t"])
    assert not world.evaluations("small_files")[key("d1")].passed
    assert requested(sensor_tick(world)) == []


def test_table_measured_often_by_the_command_line_is_observed_again_after_its_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.catalog.create("db.t").add("d1", 1)
    world.observe()
    world.clock.sleep(OBSERVE_AGAIN_AFTER_MS // 1000)
    look(world)
    world.observe()
    observations = world.events(dg.DagsterEventType.ASSET_OBSERVATION)
    assert len([o for o in observations if o.asset_observation.partition is None]) == 2


def test_table_that_dagster_never_observed_is_requested_and_shown_as_not_measured_yet(world: World) -> None:
    world.catalog.create("db.t").add("d1", 1)
    look(world)
    tick = sensor_tick(world)
    assert requested(tick) == [["lake.db.t"]]
    check = NAMES.get_check_key(T, "no_progress")
    storage = world.instance.event_log_storage
    evaluation = storage.get_latest_asset_check_execution_by_key([check])[check].evaluation
    assert evaluation is not None
    assert (evaluation.passed, evaluation.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert evaluation.description == "The table was not measured yet. The first observation is requested."
    [shown_now] = world.instance.fetch_observations(NAMES.get_asset_key(T), limit=5).records
    assert shown_now.asset_observation is not None
    assert shown_now.asset_observation.metadata["status"].value == "not measured yet"
    sensor_tick(world)
    records = world.instance.fetch_observations(NAMES.get_asset_key(T), limit=5).records
    texts = [r.asset_observation.description for r in records if r.asset_observation]
    assert texts.count(NOT_MEASURED) == 1
    world.observe()
    assert world.evaluations("no_progress")[None].passed


def test_table_that_another_dagster_instance_observed_is_requested(world: World) -> None:
    world.catalog.create("db.t").add("d1", 1)
    world.observe()
    assert requested(sensor_tick(world)) == []
    with dg.DagsterInstance.ephemeral(settings=SETTINGS) as fresh:
        world.instance = fresh
        assert requested(sensor_tick(world)) == [["lake.db.t"]]


def test_pause_and_its_end_are_observed_and_shown_on_the_asset(world: World) -> None:
    world.catalog.create("db.t").add("d1", 8)
    world.observe()
    world.ledger.registry.pause("*", "catalog moves", "ben")
    assert (requested(sensor_tick(world)), observed(world)) == ([], ["lake.db.t"])
    since = moment(world.ledger.registry.pauses()[0].pause.since_ms)
    text = f"a pause of the whole fleet by ben since {since}: catalog moves (to end it: iceberg-maint resume)"
    [*_, shown] = world.events(dg.DagsterEventType.ASSET_OBSERVATION)
    metadata = shown.asset_observation.metadata
    assert shown.asset_observation.description == f"DEFER (paused): deferred by {text}"
    assert metadata["deferred_by"].value == text
    assert metadata["due_partitions"].value == 1
    assert metadata["due_mib"].value == 0.007629
    check = world.evaluations("small_files")[key("d1")]
    assert not check.passed
    assert check.description.endswith(f"; deferred by {text}")
    assert requested(sensor_tick(world)) == []
    world.ledger.registry.resume("*")
    assert (requested(sensor_tick(world)), observed(world)) == ([], ["lake.db.t"] * 2)
    assert "deferred by" not in world.evaluations("small_files")[key("d1")].description


def queue_run(world: World, table: TableId) -> None:
    """A run of all its partitions, which waits in the queue."""
    asset = NAMES.get_asset_key(table)
    job = world.definitions.resolve_implicit_global_asset_job_def().get_subset(asset_selection={asset})
    world.instance.create_run_for_job(
        job,
        asset_selection={asset},
        status=dg.DagsterRunStatus.QUEUED,
        remote_job_origin=RemoteJobOrigin(
            RemoteRepositoryOrigin(
                ManagedGrpcPythonEnvCodeLocationOrigin(LoadableTargetOrigin(module_name="m"), "here"), "r"
            ),
            job.name,
        ),
        tags={
            "dagster/asset_partition_range_start": key("d1"),
            "dagster/asset_partition_range_end": key("d2"),
        },
    )


def shown(world: World, table: TableId) -> set[tuple[str | None, str]]:
    """What Dagster shows of the check `small_files`, by partition."""
    infos = world.instance.event_log_storage.get_asset_check_partition_info(
        [NAMES.get_check_key(table, "small_files")]
    )
    return {(i.partition_key, i.latest_execution_status.value) for i in infos}


def test_check_stays_red_while_its_run_waits_in_the_queue(world: World) -> None:
    table = world.catalog.create("db.t")
    table.add("d1", 8)
    table.add("d2", 8)
    world.observe()
    queue_run(world, T)
    assert shown(world, T) == {(key("d1"), "PLANNED"), (key("d2"), "PLANNED")}
    assert (requested(sensor_tick(world)), observed(world)) == ([], ["lake.db.t"])
    assert shown(world, T) == {(key("d1"), "FAILED"), (key("d2"), "FAILED")}
    assert requested(sensor_tick(world)) == []


def test_checks_of_many_tables_whose_runs_wait_are_red_after_some_ticks_without_a_run_that_waits_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("db.t", "db.u"):
        table = world.catalog.create(name)
        table.add("d1", 8)
        table.add("d2", 8)
    world.observe()
    for waiting in (T, U):
        queue_run(world, waiting)
    monkeypatch.setattr("iceberg_maint.defs.automation.tick_observation.TABLES_PER_TICK", 1)
    monkeypatch.setattr("iceberg_maint.defs.automation.tick_observation.WAITING_PARTITIONS_PER_TICK", 9)
    for ticks in (["lake.db.t"], ["lake.db.t", "lake.db.u"], ["lake.db.t", "lake.db.u"]):
        assert (requested(sensor_tick(world)), observed(world)) == ([], ticks)
    for waiting in (T, U):
        assert shown(world, waiting) == {(key("d1"), "FAILED"), (key("d2"), "FAILED")}


def test_checks_of_some_tables_whose_runs_wait_are_red_after_one_tick(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("db.t", "db.u"):
        table = world.catalog.create(name)
        table.add("d1", 8)
        table.add("d2", 8)
    world.observe()
    for waiting in (T, U):
        queue_run(world, waiting)
    monkeypatch.setattr("iceberg_maint.defs.automation.tick_observation.TABLES_PER_TICK", 1)
    assert (requested(sensor_tick(world)), observed(world)) == ([], ["lake.db.t, lake.db.u"])
    for waiting in (T, U):
        assert shown(world, waiting) == {(key("d1"), "FAILED"), (key("d2"), "FAILED")}


def test_run_that_ended_without_a_word_is_followed_by_an_observation(world: World) -> None:
    world.catalog.create("db.t").add("d1", 8)
    world.observe()
    run = world.instance.create_run_for_job(
        world.definitions.resolve_implicit_global_asset_job_def(), status=dg.DagsterRunStatus.STARTED
    )
    store_run(world.instance, NAMES.get_asset_key(T), run.run_id)
    assert requested(sensor_tick(world)) == []
    world.instance.report_run_failed(run)
    assert (requested(sensor_tick(world)), observed(world)) == ([], ["lake.db.t"])
    assert (requested(sensor_tick(world)), observed(world)) == ([], ["lake.db.t"])


def test_schedule_asks_to_observe_all_tables_in_pieces_and_never_twice_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iceberg_maint.defs.automation.sensors.TABLES_PER_RUN", 2)
    overrides = {**SETTINGS, "concurrency": {"runs": {"max_concurrent_runs": 1}}}
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides=overrides) as instance:
        world = World(tmp_path, instance)
        for name in ("db.a", "db.b", "db.c"):
            world.catalog.create(name)
        schedule = world.definitions.resolve_schedule_def("observe_schedule")
        job = world.definitions.resolve_job_def(OBSERVE_JOB)
        of_another_location = observe_config([TableId.parse("lake.db.z")])
        instance.create_run_for_job(job, run_config=of_another_location, status=dg.DagsterRunStatus.STARTED)
        at = datetime(2027, 1, 1, tzinfo=UTC)
        with dg.build_schedule_context(instance=instance, scheduled_execution_time=at) as context:
            tick = schedule.evaluate_tick(context)
        assert requested(tick) == [["lake.db.a", "lake.db.b"], ["lake.db.c"]]
        assert len({r.run_key for r in tick.run_requests}) == 2
        instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
        with dg.build_schedule_context(instance=instance, scheduled_execution_time=at) as context:
            assert requested(schedule.evaluate_tick(context)) == []


@pytest.mark.parametrize(
    ("longest", "tables", "seconds"),
    [
        (60, 0, 10),
        (60, 10, 10),
        (60, 50, 30),
        (60, 99, 59),
        (60, 100, 60),
        (60, 2000, 60),
        (30, 50, 15),
        (5, 10, 5),
    ],
)
def test_interval_of_a_tick_grows_with_the_tables_up_to_the_longest(
    longest: int, tables: int, seconds: int
) -> None:
    assert tick_interval(longest, tables) == seconds


def test_run_of_the_automation_has_a_tag_with_its_table(world: World) -> None:
    world.catalog.create("db.sick").add("d1", 8)
    definitions = world.definitions
    assert world.observe(definitions=definitions).success
    [request] = sensor_tick(world, definitions, "due_maintenance").run_requests
    assert (request.partition_key, request.tags["iceberg_maint/table"]) == ("day=d1", "lake.db.sick")


def test_tick_evaluates_due_work_and_changed_reasons_only(world: World) -> None:
    """The first tick has no earlier reason to compare with. Housekeeping is due: no storage was ever searched."""
    sick, calm = (TableId.parse(f"lake.db.{name}") for name in ("sick", "calm"))
    world.catalog.create("db.sick").add("d1", 8)
    world.catalog.create("db.calm").add("d1", 1)
    definitions = world.definitions
    assert world.observe(definitions=definitions).success
    both = {key for t in (sick, calm) for key in (NAMES.get_asset_key(t), NAMES.get_housekeeping_key(t))}

    def evaluated() -> set[dg.AssetKey]:
        tick = sensor_tick(world, definitions, "due_maintenance")
        return {evaluation.key for evaluation in tick.automation_condition_evaluations}

    assert evaluated() == both
    assert evaluated() == both - {NAMES.get_asset_key(calm)}
    world.ledger.registry.pause(str(calm), "migration")
    assert evaluated() == both
    assert evaluated() == {NAMES.get_asset_key(sick), NAMES.get_housekeeping_key(sick)}


def test_tick_warns_of_no_beta(world: World) -> None:
    world.catalog.create("db.t").add("d1", 8)
    definitions = world.definitions
    assert world.observe(definitions=definitions).success
    with warnings.catch_warnings():
        warnings.simplefilter("error", dg.BetaWarning)
        tick = sensor_tick(world, definitions, "due_maintenance")
    assert {e.key for e in tick.automation_condition_evaluations} >= {NAMES.get_asset_key(T)}


def test_tick_evaluates_few_of_many_changed_reasons(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance_sensor, "CHANGED_PER_TICK", 1)
    for name in "ab":
        world.catalog.create(f"db.{name}").add("d1", 1)
    definitions = world.definitions
    assert world.observe(definitions=definitions).success
    counts = [
        len(sensor_tick(world, definitions, "due_maintenance").automation_condition_evaluations)
        for _ in range(3)
    ]
    assert counts == [3, 3, 2]  # the housekeeping of both tables is due in each


def test_automation_sensors_hold_no_more_tables_than_dagster_evaluates(world: World) -> None:
    tables = [TableId("lake", ("db",), f"t{i:04d}") for i in range(TABLES_PER_SENSOR + 1)]
    context = world.context
    observation = TickObservation(world.definitions.resolve_job_def(OBSERVE_JOB), tables, context, NAMES)
    built = build_automation_sensors(tables, context, IcebergTranslator(), observation)
    assert [s.name for s in built] == ["due_maintenance", "due_maintenance_2"]
    assert all(s.run_tags["iceberg_maint/engine"] == "spark" for s in built)
    # Dagster runs again what crashed, and not what failed: that waits by the ledger.
    assert all(s.run_tags["dagster/retry_on_asset_or_op_failure"] == "false" for s in built)


def test_reload_without_an_address_says_what_to_do(world: World) -> None:
    world.catalog.create("db.t").add("d1", 1)
    definitions = world.definitions
    world.catalog.create("db.u").add("d1", 1)
    world.observe(definitions=definitions)
    assert BY_HAND in sensor_tick(world, definitions).skip_message


def test_configuration_that_changed_asks_for_a_reload_when_it_can_be_loaded(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    good = "catalogs: {lake: {type: rest, uri: 'http://c'}}\n"
    file.write_text(good, "utf-8")
    loaded = ConfigurationFile(file, lambda: load_config(file, {}))
    assert loaded.follow(lambda: "reloaded") == []
    file.write_text(f"{good}defaults: {{mode: advise}}\n", "utf-8")
    assert loaded.follow(lambda: "reloaded") == ["reloaded"]
    for text in (f"{good}defaults: {{mode: advice}}\n", "{"):
        file.write_text(text, "utf-8")
        [told] = loaded.follow(lambda: "reloaded")
        assert told.startswith("the configuration changed; runs fail until this is fixed: ICM-100 ")
    file.unlink()
    [told] = loaded.follow(lambda: "reloaded")
    assert "cannot be read" in told


def test_tick_says_that_the_configuration_is_not_the_one_loaded(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.yaml"
    good = f"catalogs: {{lake: {{type: jdbc, uri: 'sqlite:///{tmp_path}/c.db', warehouse: 'file:{tmp_path}'}}}}\n"
    file.write_text(good, "utf-8")
    write_table_list(tmp_path / "tables.json", [])
    environ = {"ICEBERG_MAINT_CONFIG": str(file), "ICEBERG_MAINT_HOME": str(tmp_path)}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    loaded = definitions_from(environ)
    assert "the configuration changed" not in sensor_tick(world, loaded).skip_message
    file.write_text(f"{good}defaults: {{mode: advise}}\n", "utf-8")
    assert f"the configuration changed: {BY_HAND}; " in sensor_tick(world, loaded).skip_message
    assert "the configuration changed" not in sensor_tick(world, definitions_from(environ)).skip_message


class _Client:
    """Stands for a webserver's client; `answer` is its status or an error."""

    def __init__(self, answer: object) -> None:
        self.answer, self.asked = answer, []

    def __call__(self, host: str, **options: object) -> _Client:
        self.asked.append((host, options["port_number"], options["use_https"]))
        return self

    def reload_repository_location(self, location: str) -> object:
        self.asked.append(location)
        if isinstance(self.answer, Exception):
            raise self.answer
        return ReloadRepositoryLocationInfo(status=self.answer, message="no such location")


def _refused() -> Exception:
    """As the client raises it when nobody listens."""
    error = DagsterGraphQLClientError("Exception occurred during execution of query")
    error.__cause__ = ConnectionError("refused")
    return error


def test_reload_asks_the_webserver_for_this_location(monkeypatch: pytest.MonkeyPatch) -> None:
    client = _Client(ReloadRepositoryLocationStatus.SUCCESS)
    monkeypatch.setattr("dagster_graphql.DagsterGraphQLClient", client)
    assert reload_location("https://ui:8443", "maint_1", WHY) == f"{WHY}: code location reloaded"
    assert client.asked == [("ui", 8443, True), "maint_1"]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (ReloadRepositoryLocationStatus.FAILURE, "no such location"),
        (_refused(), "http://127.0.0.1:3000 does not answer: ConnectionError: refused"),
    ],
)
def test_reload_that_fails_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, answer: object, says: str
) -> None:
    monkeypatch.setattr("dagster_graphql.DagsterGraphQLClient", _Client(answer))
    message = reload_location("http://127.0.0.1:3000", "iceberg_maint", WHY)
    assert message.startswith(f"{WHY}: {BY_HAND}")
    assert says in message
