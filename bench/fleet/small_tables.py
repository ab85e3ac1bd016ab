"""Many small tables in need of work: what a run over all of them costs, on the command line and in Dagster.

    python -m bench.fleet.small_tables [--tables 200] [--rounds 1] [--parts cli dagster] [--java-options OPTIONS]
        [--no-targets]

Each table has 32 files in four partitions. PyIceberg makes them on SQLite and local disk; every round starts with the
same files at the same place. Figures are CPU seconds of a process with its JVM and Spark's Python workers. Exits 1
when a target is missed.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.fleet.phases import Phases, noted
from bench.fleet.tables import write_config
from bench.worker import PROJECT, run_worker
from iceberg_maint.engines.spark.session.process_tree import used

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile

MODULE = "bench.fleet.small_tables"
DATA = Path(__file__).parents[1] / ".data"
PARTITIONS, FILES_PER_PARTITION, ROWS_PER_FILE = 4, 8, 50
SECONDS_PER_TABLE, DRIVER_SECONDS_PER_TABLE = 0.3, 0.15
MAINTAINED = "maintained"
ALL_MAINTAINED = "tables maintained"


def main() -> int:
    """Prints a table per part and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--java-options", default="", help="spark.driver.defaultJavaOptions of the run")
    parser.add_argument(
        "--no-targets",
        action="store_true",
        help="judge the number of maintained tables only, beside other work",
    )
    parser.add_argument("--worker", choices=WORKERS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        print(json.dumps(WORKERS[given.worker]()))
        return 0
    spark: dict[str, Any] = {}
    if given.java_options:
        spark["conf"] = {"spark.driver.defaultJavaOptions": given.java_options}
    missed = _compare(given.tables, given.rounds, given.parts, spark)
    return int(any(not given.no_targets or name.endswith(ALL_MAINTAINED) for name in missed))


def _compare(tables: int, rounds: int, parts: list[str], spark: dict[str, Any]) -> list[str]:
    """Prints the figures. Returns what is missed."""
    results: dict[str, list[dict[str, Any]]] = {}
    for _ in range(rounds):
        for part in parts:
            home = _configured_lake(tables, spark)
            results.setdefault(part, []).append(_run(part, home, tables))
    missed = [f"{part}: {name}" for part, runs in results.items() for name in _report(part, tables, runs)]
    print(json.dumps({"tables": tables, "results": results, "missed": missed}))
    return missed


def _run(part: str, home: Path, tables: int) -> dict[str, Any]:
    environ: dict[str, str] = {}
    if part == "dagster":
        (home / "dagster").mkdir()
        template = PROJECT / "iceberg_maint" / "defs" / "dagster.yaml"
        shutil.copy(template, home / "dagster" / "dagster.yaml")
        names = [["lake", "db", f"t{n:04d}"] for n in range(tables)]
        (home / "tables.json").write_text(json.dumps({"version": 1, "tables": names}), "utf-8")
        environ = {
            "ICEBERG_MAINT_TABLE_LIST": str(home / "tables.json"),
            "DAGSTER_HOME": str(home / "dagster"),
        }
        run_worker(MODULE, "request", home, **environ)
    return run_worker(MODULE, part, home, **environ)


def _report(part: str, tables: int, runs: list[dict[str, Any]]) -> list[str]:
    """Prints the medians. Returns the names of the targets that are missed."""
    from rich.console import Console
    from rich.table import Table

    def median(*path: str) -> float:
        values = []
        for run in runs:
            value: Any = run
            for step in path:
                value = value.get(step, 0) if isinstance(value, dict) else value
            values.append(float(value))
        return statistics.median(values)

    shown = Table(
        f"{part}: {tables:,} tables, median of {len(runs)}", "driver", "JVM", "workers", "all", "ms a table"
    )
    phases = dict.fromkeys(name for run in runs for name in run["phases"])
    for name in (*phases, "all"):
        where = ("used",) if name == "all" else ("phases", name)
        each = [median(*where, process) for process in ("driver", "jvm", "workers")]
        cells = [f"{seconds:.1f}" for seconds in (*each, sum(each))]
        shown.add_row(name, *cells, f"{1000 * sum(each) / tables:.0f}")
    Console(width=120).print(shown)
    targets = {
        "CPU seconds of all tables": (median("used", "all"), SECONDS_PER_TABLE * tables),
        "driver's CPU seconds per table": (median("used", "driver") / tables, DRIVER_SECONDS_PER_TABLE),
    }
    for name, (value, limit) in targets.items():
        print(f"{part}: {name}: {value:.3g}, limit {limit:g}{'' if value <= limit else ' MISSED'}")
    print(f"{part}: {median('wall'):.0f} seconds; {runs[0][MAINTAINED]} tables maintained")
    if any(run[MAINTAINED] != tables for run in runs):
        return [ALL_MAINTAINED]
    return [name for name, (value, limit) in targets.items() if value > limit]


def _configured_lake(tables: int, spark: dict[str, Any]) -> Path:
    home = lake(tables)
    with (home / "iceberg_maint.yaml").open("a", encoding="utf-8") as config:
        config.write(f"spark: {json.dumps(spark)}\n")
    return home


def lake(tables: int) -> Path:
    """Returns the folder of a lake in which every table needs work; made on first use, restored at each."""
    folder = DATA / f"small-tables-{tables}"
    fresh, home = folder / "fresh.tar", folder / "home"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    if not fresh.is_file():
        _make(home, tables)
        write_config(home)
        subprocess.run(["tar", "-cf", f"{fresh}.new", "-C", str(folder), "home"], check=True)
        Path(f"{fresh}.new").rename(fresh)
    else:
        subprocess.run(["tar", "-xf", str(fresh), "-C", str(folder)], check=True)
    return home


def _make(home: Path, tables: int) -> None:
    import uuid

    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.io.pyarrow import _dataframe_to_data_files
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import DoubleType, LongType, NestedField, StringType

    catalog = SqlCatalog("lake", uri=f"sqlite:///{home / 'catalog.db'}", warehouse=home.as_uri())
    catalog.create_namespace("db")
    schema = Schema(
        NestedField(1, "day", LongType(), required=False),
        NestedField(2, "id", LongType(), required=False),
        NestedField(3, "name", StringType(), required=False),
        NestedField(4, "amount", DoubleType(), required=False),
    )
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "day"))
    rows = range(PARTITIONS * ROWS_PER_FILE)
    data = pa.table(
        {
            "day": pa.array([n % PARTITIONS for n in rows], pa.int64()),
            "id": pa.array(rows, pa.int64()),
            "name": pa.array([f"name {n * 7919 % 1000}" for n in rows], pa.string()),
            "amount": pa.array([n / 7 for n in rows], pa.float64()),
        }
    )
    first: list[DataFile] = []
    for number in range(tables):
        table = catalog.create_table(f"db.t{number:04d}", schema, partition_spec=spec)
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            if not first:
                for _ in range(FILES_PER_PARTITION):
                    first += _dataframe_to_data_files(table.metadata, data, table.io, write_uuid=uuid.uuid4())
                source = table.location()
            for file in first:
                append.append_data_file(_copied(file, source, table.location()))
    catalog.close()


def _copied(file: DataFile, source: str, location: str) -> DataFile:
    """The file of another table with the same rows, copied: to write it again would take ten times as long."""
    if source == location:
        return file
    path = location + file.file_path.removeprefix(source)
    target = Path(path.removeprefix("file://"))
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file.file_path.removeprefix("file://"), target)
    copied = copy.copy(file)
    copied._data = [path if value == file.file_path else value for value in file._data]
    return copied


def _cli() -> dict[str, Any]:
    """`run` over all tables, in this process."""
    import io
    from contextlib import redirect_stdout

    from iceberg_maint.cli import iceberg_maint as program
    from iceberg_maint.cli.context import Session, build_context
    from iceberg_maint.machine.without_pandas import hide_pandas

    hide_pandas()  # as the program does
    phases = Phases()
    session = Session(build=lambda config: noted(build_context(config), phases))
    out, began = io.StringIO(), time.monotonic()
    phases.begin()
    with redirect_stdout(out):
        program.main(["run", "--json"], obj=session, standalone_mode=False)
    phases.end()
    document = json.loads(out.getvalue())
    rewrites = [
        o for t in document["tables"] for o in t["operations"] if o["operation"] == "rewrite_data_files"
    ]
    return _result(phases, began, sum(o["outcome"] == "IMPROVED" for o in rewrites))


def _result(phases: Phases, began: float, maintained: int) -> dict[str, Any]:
    all_used = used()
    return {
        "used": {**all_used._asdict(), "all": sum(all_used)},
        "phases": {name: seconds._asdict() for name, seconds in phases.by_phase.items()},
        "calls": phases.calls,
        "wall": time.monotonic() - began,
        MAINTAINED: maintained,
    }


def _dagster() -> dict[str, Any]:
    """One run for the data of all tables, as a run's process executes it."""
    from iceberg_maint.wiring import adapters

    phases, build = Phases(), adapters.build
    adapters.build = lambda config: noted(build(config), phases)
    began = time.monotonic()
    phases.begin()
    import dagster as dg
    from dagster._core.definitions.reconstruct import ReconstructableJob, ReconstructableRepository
    from dagster._grpc.impl import core_execute_run

    from iceberg_maint.core.model.ids import TableId
    from iceberg_maint.defs.translator import IcebergTranslator

    home = Path(os.environ["ICEBERG_MAINT_CONFIG"]).parent
    listed = json.loads((home / "tables.json").read_text("utf-8"))["tables"]
    keys = frozenset(IcebergTranslator().get_asset_key(TableId(t[0], (t[1],), t[2])) for t in listed)
    repository = ReconstructableRepository.for_module("iceberg_maint.definitions", "defs")
    job = ReconstructableJob(repository, "__ASSET_JOB", asset_selection=keys)
    with dg.DagsterInstance.get() as instance:
        [run] = instance.get_runs(dg.RunsFilter(tags={"iceberg_maint/shared_run": "true"}))
        for _ in core_execute_run(job, run, instance, inject_env_vars=False):
            pass
        phases.end()
        ended = instance.get_run_by_id(run.run_id)
        assert ended is not None
        assert ended.status is dg.DagsterRunStatus.SUCCESS, ended.status
        kinds = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
    done = {e.dagster_event.asset_key for e in kinds if e.dagster_event is not None}
    return {**_result(phases, began, len(done)), "materializations": len(kinds)}


def _request() -> dict[str, Any]:
    """Observes all tables, and makes the run that `_dagster` executes: the start of a run is not measured twice."""
    import dagster as dg

    from iceberg_maint.definitions import defs

    repository = defs.get_repository_def()
    with dg.DagsterInstance.get() as instance:
        job = repository.get_job("observe_iceberg")
        assert job.execute_in_process(instance=instance).success
        sensor = repository.get_sensor_def("due_maintenance")
        context = dg.build_sensor_context(instance, repository_def=repository, sensor_name=sensor.name)
        requests = sensor.evaluate_tick(context).run_requests or ()
        keys = frozenset(key for request in requests for key in request.asset_selection or ())
        job = repository.get_job("__ASSET_JOB").get_subset(asset_selection=keys)
        instance.create_run_for_job(job, asset_selection=keys, tags=requests[0].tags)
    return {"requests": len(requests)}


WORKERS = {"cli": _cli, "dagster": _dagster, "request": _request}
PARTS = ("cli", "dagster")

if __name__ == "__main__":
    sys.exit(main())
