"""A run by a Pipes client of Dagster's own, whose messages are received at its end."""

from __future__ import annotations

import sys
from pathlib import Path

import dagster as dg
import pytest

from iceberg_maint.component import Environment, build_iceberg_maintenance_defs, by_client
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.names import DUE_CHECK, NO_PROGRESS_CHECK
from iceberg_maint_tests.support.e2e.lake import make_lake, make_table

pytestmark = pytest.mark.slow

KEY = dg.AssetKey(["iceberg_maint", "lake", "db", "events"])


def test_client_of_dagster_runs_the_command_and_its_events_arrive(tmp_path: Path) -> None:
    environment = Environment(sys.executable, str(make_lake(tmp_path)))
    make_table(tmp_path, "db.events", 6)
    launcher = by_client(dg.PipesSubprocessClient(), environment.command())
    definitions = build_iceberg_maintenance_defs([TableId.parse("lake.db.events")], launcher)
    job = definitions.resolve_implicit_global_asset_job_def().get_subset(
        asset_selection=set(), asset_check_selection={dg.AssetCheckKey(KEY, NO_PROGRESS_CHECK)}
    )
    with dg.DagsterInstance.ephemeral() as instance:
        assert job.execute_in_process(instance=instance).success
        check = dg.AssetCheckKey(KEY, DUE_CHECK)
        infos = instance.event_log_storage.get_asset_check_partition_info([check])
        statuses = {str(i.partition_key): i.latest_execution_status.value for i in infos}
    assert statuses == {"p=0": "FAILED", "p=1": "FAILED", "p=2": "FAILED"}
