"""The process of a run loads the assets that the run executes, whatever the size of the fleet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from click.testing import CliRunner
from dagster._core.definitions.reconstruct import ReconstructableJob, ReconstructableRepository
from dagster._grpc.types import ExecuteRunArgs
from pyiceberg.catalog.sql import SqlCatalog

from iceberg_maint.cli import iceberg_maint
from iceberg_maint.config import CONFIG_VARIABLE
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.code_location import CodeLocation, write_table_list
from iceberg_maint.defs.dagster_internals import executed_run
from iceberg_maint.defs.load_definitions import build_definitions
from iceberg_maint.defs.names import OBSERVE_JOB
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint_tests.defs.conftest import World

pytestmark = pytest.mark.slow

NAMES = IcebergTranslator()
T, OTHER = TableId.parse("lake.db.t"), TableId.parse("lake.db.other")
ASSETS = "__ASSET_JOB"


def run_of(*keys: dg.AssetKey, job: str = ASSETS, checks: tuple[dg.AssetCheckKey, ...] = ()) -> dg.DagsterRun:
    return dg.DagsterRun(
        job,
        run_id="r",
        asset_selection=frozenset(keys) or None,
        asset_check_selection=frozenset(checks) or None,
    )


def keys_of_table(table: TableId) -> set[dg.AssetKey]:
    return {NAMES.get_asset_key(table), NAMES.get_housekeeping_key(table)}


def keys_of(definitions: dg.Definitions) -> set[dg.AssetKey]:
    return set(definitions.resolve_all_asset_keys())


def built(world: World, run: dg.DagsterRun | None) -> dg.Definitions:
    return build_definitions(world.context, CodeLocation([OTHER, T], world.table_list, run=run))


def test_run_of_a_table_loads_its_two_assets_and_no_sensor(world: World) -> None:
    definitions = built(world, run_of(NAMES.get_asset_key(T)))
    assert keys_of(definitions) == keys_of_table(T)
    assert (definitions.sensors, definitions.schedules) == (None, None)


def test_run_of_a_check_loads_the_assets_of_its_table(world: World) -> None:
    check = NAMES.get_check_key(OTHER, "small_files")
    assert keys_of(built(world, run_of(checks=(check,)))) == keys_of_table(OTHER)


def test_observe_run_loads_no_asset_and_has_its_job(world: World) -> None:
    definitions = built(world, run_of(job=OBSERVE_JOB))
    assert keys_of(definitions) == set()
    assert definitions.resolve_job_def(OBSERVE_JOB).name == OBSERVE_JOB


@pytest.mark.parametrize(
    "run",
    [
        None,
        run_of(),
        run_of(NAMES.get_asset_key(T), dg.AssetKey("other")),
        run_of(job="other_job"),
    ],
)
def test_process_that_may_need_any_asset_loads_all(world: World, run: dg.DagsterRun | None) -> None:
    definitions = built(world, run)
    assert keys_of(definitions) == keys_of_table(T) | keys_of_table(OTHER)
    assert len(list(definitions.sensors or ())) > 0


def test_process_that_executes_no_run_has_none() -> None:
    assert executed_run() is None


def test_worker_of_a_run_of_one_table_loads_that_table_only(tmp_path: Path) -> None:
    """A real worker process, as every launcher for containers starts it."""
    assert CliRunner().invoke(iceberg_maint, ["init", str(tmp_path)]).exit_code == 0
    catalog = SqlCatalog(
        "lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse"
    )
    catalog.create_namespace("db")
    catalog.create_table("db.t", pa.schema({"id": pa.int64()})).append(pa.table({"id": [1]}))
    tables = tmp_path / "tables.json"
    write_table_list(tables, [T, OTHER])
    (tmp_path / "location.py").write_text(
        "from iceberg_maint.definitions import defs\n"
        "print('LOADED', *sorted(k.to_user_string() for k in defs.resolve_all_asset_keys()), flush=True)\n"
    )
    environ = {
        "DAGSTER_HOME": str(tmp_path / "dagster_home"),
        CONFIG_VARIABLE: str(tmp_path / "iceberg_maint.yaml"),
        "ICEBERG_MAINT_TABLE_LIST": str(tables),
    }
    with (
        pytest.MonkeyPatch.context() as patch,
        dg.DagsterInstance.from_config(environ["DAGSTER_HOME"]) as home,
    ):
        for name, value in environ.items():
            patch.setenv(name, value)
        key = NAMES.get_housekeeping_key(T)
        job = ReconstructableJob(
            ReconstructableRepository.for_file(str(tmp_path / "location.py"), "defs", str(tmp_path)),
            ASSETS,
            asset_selection=frozenset({key}),
        )
        origin = job.get_python_origin()
        run = home.create_run_for_job(
            job.get_definition(), asset_selection=frozenset({key}), job_code_origin=origin
        )
        arguments = ExecuteRunArgs(origin, run.run_id, home.get_ref())
        worker = subprocess.run(
            [sys.executable, "-m", *arguments.get_command_args()], capture_output=True, text=True, check=False
        )
        assert worker.returncode == 0, worker.stderr
        loaded = [line for line in worker.stdout.splitlines() if line.startswith("LOADED")]
        keys = keys_of_table(T) | {NAMES.get_fleet_key("fleet_report")}
        assert loaded == [f"LOADED {' '.join(sorted(k.to_user_string() for k in keys))}"]
        after = home.get_run_by_id(run.run_id)
        assert after is not None
        assert after.status is dg.DagsterRunStatus.SUCCESS
