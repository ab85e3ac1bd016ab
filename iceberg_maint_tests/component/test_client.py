"""Runs of the program by Dagster Pipes: by a client of Dagster's own, within limits, asked to yield, and none of its children."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner

from iceberg_maint.cli import iceberg_maint
from iceberg_maint.component import Environment, build_iceberg_maintenance_defs, by_client, in_subprocess
from iceberg_maint.component.launch import Launcher, Receive
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.names import DUE_CHECK, NO_PROGRESS_CHECK
from iceberg_maint_tests.support.e2e.lake import make_lake, make_table

pytestmark = pytest.mark.slow

KEY = dg.AssetKey(["iceberg_maint", "lake", "db", "events"])
TABLE = "lake.db.events"
PARTITIONS = ["p=0", "p=1", "p=2"]


class Lake:
    """A lake with a table of six small files in each partition, and an instance of Dagster."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance) -> None:
        self.instance = instance
        self.environment = Environment(sys.executable, str(make_lake(folder)))
        make_table(folder, "db.events", 6)

    def run(self, launcher: Launcher, *, observes: bool = False) -> dg.ExecuteInProcessResult:
        definitions = build_iceberg_maintenance_defs([TableId.parse(TABLE)], launcher)
        job = definitions.resolve_implicit_global_asset_job_def()
        if observes:
            check = dg.AssetCheckKey(KEY, NO_PROGRESS_CHECK)
            job = job.get_subset(asset_selection=set(), asset_check_selection={check})
            return job.execute_in_process(instance=self.instance)
        self.instance.add_dynamic_partitions(f"iceberg/{TABLE}", PARTITIONS)
        tags = {"dagster/asset_partition_range_start": "p=0", "dagster/asset_partition_range_end": "p=2"}
        return job.get_subset(asset_selection={KEY}).execute_in_process(instance=self.instance, tags=tags)

    def due(self) -> dict[str, str]:
        check = dg.AssetCheckKey(KEY, DUE_CHECK)
        infos = self.instance.event_log_storage.get_asset_check_partition_info([check])
        return {str(i.partition_key): i.latest_execution_status.value for i in infos}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Lake(tmp_path, instance)


def test_client_of_dagster_runs_the_command_and_its_events_arrive(lake: Lake) -> None:
    launcher = by_client(dg.PipesSubprocessClient(), lake.environment.command())
    assert lake.run(launcher, observes=True).success
    assert lake.due() == dict.fromkeys(PARTITIONS, "FAILED")


@pytest.mark.variant
@pytest.mark.spark
def test_limit_of_batches_holds_in_a_run_that_dagster_launched(lake: Lake) -> None:
    launch = in_subprocess(lake.environment)

    def limited(
        context: dg.AssetExecutionContext, command: Sequence[str], extras: Mapping[str, Any], receive: Receive
    ) -> int:
        return launch(context, [*command, "--max-batches", "1"], extras, receive)

    assert lake.run(limited).success
    assert lake.instance.get_materialized_partitions(KEY) == {"p=0"}
    assert lake.due() == {"p=0": "SUCCEEDED", "p=1": "FAILED", "p=2": "FAILED"}


@pytest.mark.spark
def test_process_that_is_asked_to_yield_at_its_start_starts_no_batch(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The three batches take less than a second: it is asked before it has imported its modules.
    monkeypatch.setattr("iceberg_maint.component.launch.POLL_SECONDS", 0.05)
    launch = in_subprocess(lake.environment)

    def yielding(
        context: dg.AssetExecutionContext, command: Sequence[str], extras: Mapping[str, Any], receive: Receive
    ) -> int:
        return launch(context, command, extras, lambda messages: receive(messages) or True)

    assert lake.run(yielding).success
    assert lake.instance.get_materialized_partitions(KEY) == set()
    assert lake.due() == dict.fromkeys(PARTITIONS, "FAILED")


def test_program_that_another_asset_launches_by_pipes_reports_nothing(tmp_path: Path) -> None:
    environment = Environment(sys.executable, str(make_lake(tmp_path)))
    make_table(tmp_path, "db.events", 2)
    found: list[Any] = []

    @dg.asset
    def own(context) -> dg.MaterializeResult:
        client, op = dg.PipesSubprocessClient(), context.op_execution_context
        done = client.run(context=op, command=environment.command("observe", TABLE, "--json"))
        found.extend(done.get_custom_messages())
        return done.get_materialize_result()

    assert dg.materialize([own]).success
    assert found == []


_CHILD = """
import json, os, subprocess, sys
from iceberg_maint.defs.runs.pipes_run import report_run
def start():
    code = "import json, os; print(json.dumps([n for n in os.environ if n.startswith('DAGSTER_PIPES')]))"
    found = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    open(sys.argv[1], "w").write(json.dumps(found))
    raise SystemExit(0)
report_run(start, "lake.db.events", None)
"""


@pytest.mark.variant
def test_process_of_a_run_inherits_no_launch(tmp_path: Path) -> None:
    found = tmp_path / "found.json"

    @dg.asset
    def own(context) -> dg.MaterializeResult:
        command = [sys.executable, "-c", _CHILD, str(found)]
        client, op = dg.PipesSubprocessClient(), context.op_execution_context
        return client.run(context=op, command=command).get_materialize_result()

    assert dg.materialize([own]).success
    assert json.loads(found.read_text("utf-8")) == []


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((TABLE,), "--pipes needs a launch by Dagster Pipes: DAGSTER_PIPES_CONTEXT is not set."),
        ((), "--pipes needs exactly one TABLE."),
        (
            (TABLE, "--until-idle"),
            "--pipes takes --max-batches and --max-seconds; Dagster gives the partitions.",
        ),
    ],
)
def test_pipes_without_a_launch_or_with_a_scope_of_its_own_is_refused(
    arguments: tuple[str, ...], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_PIPES_CONTEXT", raising=False)
    done = CliRunner().invoke(iceberg_maint, ["run", "--pipes", *arguments])
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (2, f"Error: {why}")
