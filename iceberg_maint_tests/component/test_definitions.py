"""The definitions that a project gets: names, edges, automation, and what they refuse. Nothing is launched."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg
import pytest
from dagster._core.execution.api import create_execution_plan

from iceberg_maint.component import Options, build_iceberg_maintenance_defs
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.names import DUE_CHECK, NO_PROGRESS_CHECK
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.errors import ConfigurationError

pytestmark = pytest.mark.slow

EVENTS, USERS = TableId.parse("lake.db.events"), TableId.parse("lake.db.users")
KEY = dg.AssetKey(["iceberg_maint", "lake", "db", "events"])
HOUSEKEEPING = dg.AssetKey(["iceberg_maint", "lake", "db", "events__housekeeping"])
PARTITIONS = "iceberg/lake.db.events"
OBSERVED, DUE = dg.AssetCheckKey(KEY, NO_PROGRESS_CHECK), dg.AssetCheckKey(KEY, DUE_CHECK)


@dg.asset
def raw_events() -> None:
    """The asset that loads the table."""


def project(
    *assets: dg.AssetsDefinition, options: Options | None = None, loaded: bool = True
) -> dg.Definitions:
    """A project with an executor of its own and a resource of a name that this package uses."""
    own = dg.Definitions(
        assets=list(assets) or [raw_events],
        executor=dg.multiprocess_executor,
        resources={"pyspark": dg.ResourceDefinition.hardcoded_resource("its own")},
    )
    named = {"lake.db.events": [raw_events.key]} if loaded else {}
    return dg.Definitions.merge(
        own, build_iceberg_maintenance_defs([EVENTS], assets=named, project=own, options=options)
    )


def test_project_with_an_executor_and_a_resource_pyspark_takes_the_definitions() -> None:
    definitions = project()
    dg.Definitions.validate_loadable(definitions)
    assert definitions.executor is dg.multiprocess_executor
    assert set(definitions.resolve_all_asset_keys()) == {raw_events.key, KEY, HOUSEKEEPING}
    needed = [definitions.resolve_assets_def(k).op.required_resource_keys for k in (KEY, HOUSEKEEPING)]
    assert needed == [set(), set()]


def test_loader_is_upstream_of_the_data_and_that_of_the_housekeeping() -> None:
    graph = project().resolve_asset_graph()
    assert graph.get(KEY).parent_keys == {raw_events.key}
    assert graph.get(HOUSEKEEPING).parent_keys == {KEY}
    assert graph.get(raw_events.key).child_keys == {KEY}


def test_asset_with_the_name_of_a_table_in_its_metadata_loads_it() -> None:
    @dg.asset(metadata={"dagster/table_name": "lake.db.events"})
    def ingested() -> None: ...

    graph = project(ingested, loaded=False).resolve_asset_graph()
    assert graph.get(KEY).parent_keys == {ingested.key}


def test_model_of_dbt_whose_manifest_names_no_catalog_loads_its_table() -> None:
    @dg.asset(metadata={"dagster/table_name": "db.events", "dagster_dbt/manifest": "m"})
    def events_model() -> None: ...

    @dg.asset(metadata={"dagster/table_name": "db.events"})
    def events_of_postgres() -> None: ...

    graph = project(events_model, events_of_postgres, loaded=False).resolve_asset_graph()
    assert graph.get(KEY).parent_keys == {events_model.key}


def test_asset_that_the_project_does_not_have_is_refused() -> None:
    @dg.asset
    def other() -> None: ...

    with pytest.raises(ConfigurationError) as refusal:
        project(other)
    assert str(refusal.value) == (
        "ICM-100 assets maps lake.db.events to raw_events, which is no asset of the project. "
        "Fix: correct the key: its parts are separated by /."
    )


def test_two_assets_of_one_table_are_refused_until_one_is_named() -> None:
    named = {"dagster/table_name": "lake.db.events"}

    @dg.asset(metadata=named)
    def batch_events() -> None: ...

    @dg.asset(metadata=named)
    def streamed_events() -> None: ...

    with pytest.raises(ConfigurationError) as refusal:
        project(batch_events, streamed_events, loaded=False)
    assert str(refusal.value) == (
        "ICM-100 lake.db.events is the dagster/table_name of batch_events and streamed_events. Fix: name what loads it in "
        "assets, such as assets: {lake.db.events: batch_events}."
    )


def test_entry_of_no_table_is_refused() -> None:
    with pytest.raises(ConfigurationError) as refusal:
        build_iceberg_maintenance_defs([EVENTS], assets={"lake.db.nothing": [raw_events.key]})
    assert str(refusal.value) == (
        "ICM-126 assets names lake.db.nothing, which is no table of this component. Fix: correct the name; if the table "
        "is new, run dg utils refresh-defs-state when it exists."
    )


def test_key_of_an_asset_of_the_project_is_refused() -> None:
    @dg.asset(key=["lake", "db", "events"])
    def events() -> None: ...

    own = dg.Definitions(assets=[events])
    with pytest.raises(ConfigurationError) as refusal:
        build_iceberg_maintenance_defs([EVENTS], project=own, translator=IcebergTranslator())
    assert str(refusal.value) == (
        "ICM-100 the maintenance of lake.db.events has the key lake/db/events, which an asset of the project has. "
        "Fix: set key_prefix to another one."
    )


def test_blocking_is_said_of_the_checks_of_thresholds_alone() -> None:
    graph = project(options=Options(blocking=True)).resolve_asset_graph()
    blocking = {key.name for key in graph.asset_check_keys if graph.get(key).blocking}
    assert blocking == {"small_files", "delete_files", "layout"}
    assert not any(node.blocking for node in map(project().resolve_asset_graph().get, graph.asset_check_keys))


def test_without_automation_there_is_neither_a_sensor_nor_a_condition() -> None:
    definitions = project(options=Options(observe_cron=None))
    graph = definitions.resolve_asset_graph()
    assert list(definitions.sensors or ()) == []
    assert [graph.get(k).automation_condition for k in (KEY, HOUSEKEEPING, OBSERVED)] == [None, None, None]


class Automation:
    """An instance, and the conditions of the project evaluated tick by tick."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance, self.cursor = instance, None
        self.definitions = project()

    def tick(self) -> dict[str, int]:
        """What is requested, and how many of its partitions."""
        done = dg.evaluate_automation_conditions(self.definitions, self.instance, cursor=self.cursor)
        self.cursor = done.cursor
        return {
            r.key.to_user_string(): r.true_subset.size for r in done.results if not r.true_subset.is_empty
        }

    def load(self) -> None:
        """A load that has ended."""
        self.instance.report_runless_asset_event(dg.AssetMaterialization(raw_events.key))

    def evaluate(self, partition: str | None, *, passed: bool, check: dg.AssetCheckKey = DUE) -> None:
        """The evaluation of a check by a run."""
        event = dg.AssetCheckEvaluation(
            asset_key=check.asset_key, check_name=check.name, passed=passed, partition=partition, metadata={}
        )

        @dg.op
        def evaluate_check(context) -> None:
            context.log_event(event)

        @dg.job
        def evaluation() -> None:
            evaluate_check()

        evaluation.execute_in_process(instance=self.instance)

    def begin(self, key: dg.AssetKey) -> dg.DagsterRun:
        """A run of this asset that is under way."""
        job = self.definitions.resolve_implicit_global_asset_job_def().get_subset(asset_selection={key})
        return self.instance.create_run_for_job(
            job,
            create_execution_plan(job),
            status=dg.DagsterRunStatus.STARTED,
            asset_selection=frozenset({key}),
        )

    def end(self, run: dg.DagsterRun) -> None:
        """The end of a run."""
        self.instance.report_run_failed(run)


@pytest.fixture
def automation() -> Iterator[Automation]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Automation(instance)


OBSERVE = {f"{KEY.to_user_string()}:{NO_PROGRESS_CHECK}": 1}


def test_table_is_observed_once_at_first_and_after_each_load(automation: Automation) -> None:
    assert [automation.tick(), automation.tick()] == [OBSERVE, {}]
    automation.evaluate(None, passed=True, check=OBSERVED)
    assert automation.tick() == {}
    automation.load()
    assert [automation.tick(), automation.tick()] == [OBSERVE, {}]


def test_failed_check_of_due_partitions_requests_these_alone(automation: Automation) -> None:
    automation.tick()
    automation.instance.add_dynamic_partitions(PARTITIONS, ["day=1", "day=2", "day=3"])
    automation.evaluate("day=1", passed=True)
    automation.evaluate("day=2", passed=False)
    automation.evaluate("day=3", passed=False)
    assert automation.tick() == {KEY.to_user_string(): 2}
    for partition in ("day=2", "day=3"):
        automation.evaluate(partition, passed=True)
    assert automation.tick() == {}


def test_due_housekeeping_is_requested(automation: Automation) -> None:
    automation.tick()
    automation.evaluate(None, passed=False, check=dg.AssetCheckKey(HOUSEKEEPING, DUE_CHECK))
    assert automation.tick() == {HOUSEKEEPING.to_user_string(): 1}


def test_table_is_not_observed_during_a_load_and_at_once_after_it(automation: Automation) -> None:
    automation.tick()
    automation.load()
    load = automation.begin(raw_events.key)
    assert [automation.tick(), automation.tick()] == [{}, {}]
    automation.end(load)
    assert [automation.tick(), automation.tick()] == [OBSERVE, {}]


def test_due_maintenance_waits_for_a_load_in_progress(automation: Automation) -> None:
    automation.tick()
    automation.instance.add_dynamic_partitions(PARTITIONS, ["day=1"])
    automation.evaluate("day=1", passed=False)
    load = automation.begin(raw_events.key)
    assert automation.tick() == {}
    automation.end(load)
    assert automation.tick() == {KEY.to_user_string(): 1}
