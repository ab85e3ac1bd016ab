"""Maintenance waits for what loads and reads its table: which runs count, what a run of maintenance does beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.events import StepMaterializationData
from dagster._core.execution.api import create_execution_plan

from iceberg_maint.component import Options, build_iceberg_maintenance_defs
from iceberg_maint.component.pipeline import Pipeline, uses_in_progress
from iceberg_maint.defs.names import ENGINE_TAG, NO_PROGRESS_CHECK, TABLE_TAG
from iceberg_maint_tests.support.component.pipeline import (
    AUTOMATION,
    DAYS,
    DONE,
    EVENTS,
    KEY,
    STARTED,
    PipelineProject,
    daily,
    health,
    raw_events,
    report,
)

pytestmark = pytest.mark.slow

HOUSEKEEPING = dg.AssetKey(["iceberg_maint", "lake", "db", "events__housekeeping"])


@pytest.fixture
def project() -> Iterator[PipelineProject]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield PipelineProject(instance)


@pytest.fixture
def with_one_slot(tmp_path: Path) -> Iterator[PipelineProject]:
    """On an instance that runs one run at once."""
    (tmp_path / "dagster.yaml").write_text("concurrency: {runs: {max_concurrent_runs: 1}}\n", "utf-8")
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        yield PipelineProject(instance)


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED])
def test_run_counts_until_it_has_materialized_the_asset(
    status: dg.DagsterRunStatus, project: PipelineProject
) -> None:
    assert project.uses(raw_events.key) == []
    run = project.begin(raw_events.key, status)
    assert project.uses(raw_events.key) == [f"raw_events (run {run.run_id[:8]})"]
    assert project.uses(report.key) == []
    assert uses_in_progress(project.instance, Pipeline({raw_events.key: ()}), run.run_id) == {}
    materialization = StepMaterializationData(dg.AssetMaterialization(raw_events.key))
    event = dg.DagsterEvent("ASSET_MATERIALIZATION", run.job_name, event_specific_data=materialization)
    project.instance.report_dagster_event(event, run.run_id)
    assert project.uses(raw_events.key) == []


def test_run_that_ended_does_not_count(project: PipelineProject) -> None:
    run = project.begin(raw_events.key)
    project.instance.report_run_failed(run)
    assert project.uses(raw_events.key) == []


def test_assets_that_depend_on_the_loader_are_readers_and_those_after_them_are_not(
    project: PipelineProject,
) -> None:
    graph = project.definitions(project.sends()).resolve_asset_graph()
    condition = repr(graph.get(KEY).automation_condition)
    assert "daily is in progress" in condition
    assert "report is in progress" not in condition


@pytest.mark.parametrize("user", [raw_events.key, daily.key])
def test_run_that_a_condition_requested_begins_nothing_beside_a_load_or_a_read(
    user: dg.AssetKey, project: PipelineProject
) -> None:
    project.observe("p=0")
    run = project.begin(user)
    launched = project.launched
    result = project.run(project.sends(STARTED, health(), DONE), AUTOMATION)
    assert result.success
    assert project.launched == launched
    assert project.due() == {"p=0": "SUCCEEDED" if user == raw_events.key else "FAILED"}
    project.instance.report_run_failed(run)
    assert project.run(project.sends(STARTED, health(), DONE), AUTOMATION).success
    assert project.launched == launched + 1
    assert project.due() == {"p=0": "SUCCEEDED"}


def test_maintenance_gives_the_only_slot_to_a_run_in_the_queue(with_one_slot: PipelineProject) -> None:
    project = with_one_slot
    project.observe("p=0")
    run = project.enqueue(report.key)
    launched = project.launched
    assert project.run(project.sends(STARTED, health(), DONE), AUTOMATION).success
    assert (project.launched, project.due()) == (launched, {"p=0": "FAILED"})
    project.observe("p=0")
    assert project.waits().description == f"Waits for run {run.run_id[:8]} in the queue."
    project.observe("p=0", wait_minutes=0)
    launched = project.launched
    assert project.run(project.sends(STARTED, health(), DONE), AUTOMATION, wait_minutes=0).success
    assert project.launched == launched + 1


def test_run_in_the_queue_of_maintenance_itself_is_no_reason_to_wait(with_one_slot: PipelineProject) -> None:
    project = with_one_slot
    run = project.enqueue(report.key)
    project.instance.add_run_tags(run.run_id, {ENGINE_TAG: "spark"})
    assert project.run(project.sends(STARTED, health(), DONE), AUTOMATION).success
    assert project.launched == 1


def test_run_in_the_queue_does_not_hold_up_maintenance_where_slots_are_free(project: PipelineProject) -> None:
    project.enqueue(report.key)
    result = project.run(project.sends(STARTED, health(), DONE), AUTOMATION)
    assert result.success
    assert project.launched == 1
    run = project.instance.get_run_by_id(result.run_id)
    assert run is not None
    assert run.tags[TABLE_TAG] == "lake.db.events"


@pytest.mark.variant
def test_table_that_was_measured_lately_is_left_while_a_run_waits_for_the_slot(
    with_one_slot: PipelineProject,
) -> None:
    project = with_one_slot
    project.enqueue(report.key)
    counts = []
    for wait_minutes, tags in ((60, AUTOMATION), (60, AUTOMATION), (60, {}), (0, AUTOMATION)):
        project.observe(wait_minutes=wait_minutes, tags=tags)
        counts.append(project.launched)
    assert counts == [1, 1, 2, 3]


def test_run_that_a_person_started_does_not_wait(project: PipelineProject) -> None:
    project.begin(raw_events.key)
    assert project.run(project.sends(STARTED, health(), DONE), {}).success
    assert project.launched == 1


def test_load_that_starts_during_a_run_lets_it_begin_no_further_batch(
    project: PipelineProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iceberg_maint.component.received._ASK_SECONDS", 0.0)
    asked: list[bool] = []
    launcher = project.sends(
        STARTED,
        health("p=0"),
        DONE,
        asked=asked,
        between=lambda: project.begin(raw_events.key, dg.DagsterRunStatus.STARTING),
    )
    assert project.run(launcher, AUTOMATION).success
    assert asked == [False, True, True]
    assert project.due() == {"p=0": "FAILED"}


def test_maintenance_that_waited_for_longer_than_the_limit_says_so_and_no_longer_waits(
    project: PipelineProject,
) -> None:
    run = project.begin(raw_events.key)
    project.observe("p=0", wait_minutes=0)
    assert project.waits().description == f"Waits for raw_events (run {run.run_id[:8]})."
    assert project.waits().passed
    assert project.waits().metadata["uses"].value == 1
    project.observe("p=0", wait_minutes=0)
    waits = project.waits()
    assert not waits.passed
    assert str(waits.description).endswith(
        f" and waits for raw_events (run {run.run_id[:8]}). It no longer waits. Fix: end what never ends, or raise "
        "wait_minutes of the component."
    )
    assert str(waits.description).startswith("ICM-187 lake.db.events: maintenance has been due for ")
    launched = project.launched
    assert project.run(project.sends(STARTED, health(), DONE), AUTOMATION, wait_minutes=0).success
    assert project.launched == launched + 1
    assert project.waits().passed


def test_time_of_waiting_begins_again_when_nothing_is_due(project: PipelineProject) -> None:
    project.begin(raw_events.key)
    project.observe("p=0", wait_minutes=0)
    project.observe(wait_minutes=0)
    assert "due_since" not in project.waits().metadata
    project.observe("p=0", wait_minutes=0)
    assert project.waits().passed


class Ticks:
    """The conditions of the project, evaluated tick by tick."""

    def __init__(self, project: PipelineProject) -> None:
        self.project, self.cursor = project, None

    def __call__(self) -> set[str]:
        definitions = self.project.definitions(self.project.sends())
        done = dg.evaluate_automation_conditions(definitions, self.project.instance, cursor=self.cursor)
        self.cursor = done.cursor
        return {r.key.to_user_string() for r in done.results if not r.true_subset.is_empty}


@pytest.mark.parametrize("user", [raw_events.key, daily.key])
def test_due_maintenance_is_requested_after_a_load_or_a_read_or_when_it_has_waited_too_long(
    user: dg.AssetKey, project: PipelineProject
) -> None:
    tick = Ticks(project)
    tick()
    project.observe("p=0", wait_minutes=0)
    run = project.begin(user)
    assert tick() == set()
    project.instance.report_run_failed(run)
    assert tick() == {KEY.to_user_string()}
    project.begin(user)
    assert tick() == set()
    project.observe("p=0", wait_minutes=0)
    assert tick() == {KEY.to_user_string()}


@dg.asset(deps=[dg.AssetDep(KEY, partition_mapping=dg.AllPartitionMapping())])
def summary() -> None:
    """An asset that reads the table after its maintenance."""


def check(partition: str, *, passed: bool) -> dict[str, Any]:
    return {
        "kind": "check",
        "housekeeping": False,
        "name": "small_files",
        "partition": partition,
        "passed": passed,
        "severity": "ERROR",
        "description": "",
        "metadata": "{}",
    }


@pytest.mark.parametrize(
    ("blocking", "passed", "last"),
    [
        (False, True, "STEP_SUCCESS"),
        (False, False, "STEP_SUCCESS"),
        (True, True, "STEP_SUCCESS"),
        (True, False, "STEP_SKIPPED"),
    ],
)
def test_reader_in_one_run_with_load_and_maintenance_follows_unless_a_check_blocks_it(
    blocking: bool, passed: bool, last: str, project: PipelineProject
) -> None:
    own = dg.Definitions(assets=[raw_events, summary])
    launcher = project.sends(STARTED, check("p=0", passed=passed), health(), DONE)
    maintenance = build_iceberg_maintenance_defs(
        [EVENTS], launcher, project=own, options=Options(blocking=blocking)
    )
    job = dg.define_asset_job("nightly", [raw_events.key, KEY, summary.key])
    whole = dg.Definitions.merge(own, maintenance, dg.Definitions(jobs=[job]))
    result = whole.resolve_job_def("nightly").execute_in_process(instance=project.instance)
    kinds = ("STEP_SUCCESS", "STEP_SKIPPED")
    ends = [(e.step_key, e.event_type_value) for e in result.all_events if e.event_type_value in kinds]
    assert ends == [
        ("raw_events", "STEP_SUCCESS"),
        ("maintain__lake__db__events", "STEP_SUCCESS"),
        ("summary", last),
    ]


@pytest.mark.parametrize("housekeeping", [False, True])
def test_due_maintenance_waits_for_a_load_of_one_partition(
    housekeeping: bool, project: PipelineProject
) -> None:
    @dg.asset(partitions_def=DAYS)
    def loaded_by_day() -> None: ...

    own = dg.Definitions(assets=[loaded_by_day])
    named = {str(EVENTS): [loaded_by_day.key]}
    maintenance = build_iceberg_maintenance_defs(
        [EVENTS], project.sends(STARTED, due_of_both(), DONE), project=own, assets=named
    )
    whole = dg.Definitions.merge(own, maintenance)
    key = HOUSEKEEPING if housekeeping else KEY
    cursor = dg.evaluate_automation_conditions(whole, project.instance).cursor
    job = whole.resolve_implicit_global_asset_job_def()
    check = dg.AssetCheckKey(KEY, NO_PROGRESS_CHECK)
    observed = job.get_subset(asset_selection=set(), asset_check_selection={check})
    assert observed.execute_in_process(instance=project.instance).success

    def requested() -> bool:
        done = dg.evaluate_automation_conditions(whole, project.instance, cursor=cursor)
        return any(r.key == key and not r.true_subset.is_empty for r in done.results)

    assert requested()
    load, tags = job.get_subset(asset_selection={loaded_by_day.key}), {"dagster/partition": "2026-11-02"}
    plan, chosen = create_execution_plan(load, tags=tags), frozenset({loaded_by_day.key})
    project.instance.create_run_for_job(
        load, plan, status=dg.DagsterRunStatus.STARTED, tags=tags, asset_selection=chosen
    )
    assert not requested()


def due_of_both() -> dict[str, Any]:
    return {**health("p=0"), "due_operations": ["rewrite_manifests"]}
