"""What a run elsewhere sends becomes events of this Dagster, and its end that of the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from iceberg_maint import __version__
from iceberg_maint.component import build_iceberg_maintenance_defs
from iceberg_maint.component.launch import Launcher, Receive
from iceberg_maint.defs.names import DUE_CHECK
from iceberg_maint_tests.support.component.pipeline import (
    DONE,
    EVENTS,
    KEY,
    PARTITIONS,
    STARTED,
    health,
    materialization,
)

pytestmark = pytest.mark.slow

HOUSEKEEPING = dg.AssetKey(["iceberg_maint", "lake", "db", "events__housekeeping"])
NUMBERS = (dg.IntMetadataValue, dg.FloatMetadataValue)


def sends(*messages: dict[str, Any], exit_code: int = 0) -> Launcher:
    """A run that sends these messages, numbered in this order."""

    def launch(
        _context: dg.AssetExecutionContext,
        _arguments: Sequence[str],
        _extras: Mapping[str, Any],
        receive: Receive,
    ) -> int:
        sent: list[dict[str, Any]] = []
        for number, message in enumerate(messages, 1):
            sent.append({"number": number, **message})
            receive(sent)
        return exit_code

    return launch


class Dagster:
    """An instance with the partitions of the table."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance = instance
        self.instance.add_dynamic_partitions(PARTITIONS, ["p=0", "p=1"])

    def run(self, launcher: Launcher, partition: str | None = "p=0") -> dg.ExecuteInProcessResult:
        definitions = build_iceberg_maintenance_defs([EVENTS], launcher)
        chosen = KEY if partition is not None else HOUSEKEEPING
        job = definitions.resolve_implicit_global_asset_job_def().get_subset(asset_selection={chosen})
        return job.execute_in_process(instance=self.instance, partition_key=partition, raise_on_error=False)

    def due(self) -> dict[str, str]:
        """Partition to status of the check that starts maintenance."""
        check = dg.AssetCheckKey(KEY, DUE_CHECK)
        infos = self.instance.event_log_storage.get_asset_check_partition_info([check])
        return {str(i.partition_key): i.latest_execution_status.value for i in infos}


def _pools(folder: Path, settings: str) -> dict[str, int]:
    """The limits of pools after a run on an instance with these settings."""
    (folder / "dagster.yaml").write_text(settings, "utf-8")
    with dg.DagsterInstance.from_config(str(folder)) as instance:
        instance.add_dynamic_partitions(PARTITIONS, ["p=0", "p=1"])
        assert Dagster(instance).run(sends(STARTED, health(), DONE)).success
        storage = instance.event_log_storage
        return {
            pool: storage.get_concurrency_info(pool).slot_count for pool in storage.get_concurrency_keys()
        }


@pytest.mark.parametrize(
    ("settings", "pools"),
    [
        ("", {}),
        ("run_monitoring: {enabled: true}", {}),
        (
            "run_monitoring: {enabled: true, free_slots_after_run_end_seconds: 60}",
            {"iceberg_table__lake__db__events": 1},
        ),
    ],
)
def test_pool_of_a_table_has_a_limit_where_the_slot_of_a_dead_run_becomes_free(
    settings: str, pools: dict[str, int], tmp_path: Path
) -> None:
    assert _pools(tmp_path, settings) == pools


@pytest.fixture
def dagster() -> Iterator[Dagster]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Dagster(instance)


def failure(result: dg.ExecuteInProcessResult) -> str:
    [event] = result.get_step_failure_events()
    data = event.step_failure_data
    return str(data.user_failure_data.description if data.user_failure_data else data.error)


def test_due_partitions_fail_the_check_and_healed_ones_pass_it(dagster: Dagster) -> None:
    assert dagster.run(sends(STARTED, health("p=0", "p=1"), DONE)).success
    assert dagster.due() == {"p=0": "FAILED", "p=1": "FAILED"}
    assert dagster.run(sends(STARTED, health("p=1"), DONE)).success
    assert dagster.due() == {"p=0": "SUCCEEDED", "p=1": "FAILED"}
    assert dagster.run(sends(STARTED, health(), DONE), "p=1").success
    assert dagster.due() == {"p=0": "SUCCEEDED", "p=1": "SUCCEEDED"}


def test_each_evaluation_has_a_number_to_plot(dagster: Dagster) -> None:
    result = dagster.run(sends(STARTED, health("p=0", "p=1"), DONE))
    numbers = {
        (e.check_name, e.partition): {
            name: v.value for name, v in e.metadata.items() if isinstance(v, NUMBERS)
        }
        for e in result.get_asset_check_evaluations()
    }
    assert numbers == {
        ("maintenance_due", "p=0"): {"due_partitions": 2},
        ("maintenance_due", "p=1"): {"due_partitions": 2},
        ("maintenance_due", None): {"due_operations": 0},
        ("maintenance_waits", None): {"due_minutes": 0.0, "uses": 0},
    }


def test_only_what_was_reported_is_materialized(dagster: Dagster) -> None:
    assert dagster.run(sends(STARTED, materialization("p=1"), health(), DONE)).success
    assert dagster.instance.get_materialized_partitions(KEY) == {"p=1"}


def test_partition_that_is_gone_is_deleted_when_no_run_uses_it(dagster: Dagster) -> None:
    assert dagster.run(sends(STARTED, health(gone=["p=1"]), DONE), None).success
    assert list(dagster.instance.get_dynamic_partitions(PARTITIONS)) == ["p=0"]


@pytest.mark.parametrize(
    "messages", [(), (STARTED,), (STARTED, {**health(), "number": 3}, {**DONE, "number": 4})]
)
def test_run_whose_messages_are_lost_fails_with_its_code_and_is_not_due_for_ever(
    messages: tuple[dict[str, Any], ...], dagster: Dagster
) -> None:
    dagster.run(sends(STARTED, health("p=1"), DONE))
    result = dagster.run(sends(*messages, exit_code=137))
    assert not result.success
    assert failure(result) == (
        "ICM-184 lake.db.events: the run ended with exit code 137, and messages of it are lost. What it committed stays. "
        "Fix: read its last lines in stderr of the step; the next run reconciles and continues."
    )
    due = {"p=0": "SUCCEEDED", "p=1": "FAILED"}
    assert dagster.due() == ({**due, "p=1": "SUCCEEDED"} if len(messages) == 3 else due)


def test_failure_elsewhere_fails_the_run_with_its_message(dagster: Dagster) -> None:
    ended = {**DONE, "outcome": "failed", "text": "ICM-104 the catalog is down. Fix: start it."}
    assert failure(dagster.run(sends(STARTED, health(), ended, exit_code=1))) == ended["text"]


def test_work_that_waits_is_retried_and_fails_after_the_last_attempt(dagster: Dagster) -> None:
    ended = {**DONE, "outcome": "retry", "seconds": 0.01}
    result = dagster.run(sends(STARTED, health(), ended, exit_code=1))
    assert not result.success
    attempts = [e for e in result.all_events if e.event_type_value == "STEP_UP_FOR_RETRY"]
    assert len(attempts) == 2


def test_another_version_elsewhere_is_refused(dagster: Dagster) -> None:
    assert failure(dagster.run(sends({"kind": "started", "version": "0.0.9"}))) == (
        f"ICM-184 the run elsewhere has iceberg-maint 0.0.9, this environment has {__version__}. Fix: install one version "
        "in both."
    )
