"""Dagster over a fleet of small tables: the code location, the start of a run, and the ticks of the sensors.

    python -m bench.dagster_fleet [--tables 1000] [--rounds 3]

Every part is a process of its own. The run materializes one healthy partition, in the worker process that Dagster's
launchers start. The ticks are those of all sensors, with every table measured and nothing due. The cycle is that of Dagster after writers have
committed to 100 tables: the tick that finds them, the observe run, and the ticks that decide and request. Exits 1 when
a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.fleet_tables import make_fleet_catalog, write_config
from bench.used import cpu_seconds, peak_mb

PROJECT = Path(__file__).resolve().parent.parent
TABLE = "lake.db.t00000"
PARTS = ("location", "dagster_alone", "run", "ticks", "cycle")
RUN_CPU_SECONDS, TICK_SECONDS, CYCLE_SECONDS = 6.0, 10.0, 60.0
CHANGED = 100


def main() -> int:
    """Prints a table and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", choices=PARTS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        print(json.dumps(WORKERS[given.worker]()))
        return 0
    return _compare(given.tables, given.rounds)


def limits(tables: int) -> dict[str, float]:
    """The targets: those at 10,000 tables, in proportion where the cost is per table, with what a location without
    tables costs."""
    return {
        "location_cpu_seconds": 3 + 12 * tables / 10_000,
        "location_peak_mb": 200 + 300 * tables / 10_000,
        "run_cpu_seconds": RUN_CPU_SECONDS,
        "longest_tick_seconds": TICK_SECONDS,
        "cycle_cpu_seconds": CYCLE_SECONDS,
    }


def _compare(tables: int, rounds: int) -> int:
    from rich.console import Console
    from rich.table import Table

    runs: dict[str, list[float]] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="bench-dagster-") as scratch:
            environ = _home(Path(scratch), tables)
            for part in PARTS:
                for name, value in _worker(part, environ).items():
                    runs.setdefault(name, []).append(value)
    figures = {name: round(statistics.median(values), 2) for name, values in runs.items()}
    targets = limits(tables)
    missed = [name for name, limit in targets.items() if figures[name] > limit]
    table = Table(f"{tables:,} tables (median of {rounds})", "measured", "limit")
    for name, value in figures.items():
        limit = f"{targets[name]:g}" if name in targets else ""
        table.add_row(name.replace("_", " "), f"{value:g}{' MISSED' if name in missed else ''}", limit)
    Console().print(table)
    print(json.dumps({**figures, "limits": targets, "missed": missed}))
    return int(bool(missed))


def _home(home: Path, tables: int) -> dict[str, str]:
    """Makes the fleet with its configuration, its table list and a DAGSTER_HOME, and measures every table."""
    make_fleet_catalog(home, tables)
    config = write_config(home)
    (home / "dagster").mkdir()
    template = PROJECT / "iceberg_maint" / "defs" / "dagster.yaml"
    (home / "dagster" / "dagster.yaml").write_text(template.read_text("utf-8"), "utf-8")
    table_list = [["lake", "db", f"t{n:05d}"] for n in range(tables)]
    (home / "tables.json").write_text(json.dumps({"version": 1, "tables": table_list}), "utf-8")
    environ = {
        **os.environ,
        "ICEBERG_MAINT_CONFIG": str(config),
        "ICEBERG_MAINT_TABLE_LIST": str(home / "tables.json"),
        "DAGSTER_HOME": str(home / "dagster"),
    }
    command = [sys.executable, "-m", "iceberg_maint", "observe", "--json"]
    quiet = subprocess.DEVNULL
    subprocess.run(command, cwd=PROJECT, env=environ, stdout=quiet, stderr=quiet, check=True)
    return environ


def _worker(part: str, environ: dict[str, str]) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.dagster_fleet", "--worker", part]
    run = subprocess.run(
        command,
        cwd=PROJECT,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    figures: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return figures


def _location() -> dict[str, float]:
    """What a code server does before it serves: import, repository, snapshot, serialization."""
    from dagster._core.remote_representation.external_data import RepositorySnap
    from dagster_shared.serdes import serialize_value

    from iceberg_maint.definitions import defs

    loaded = cpu_seconds()
    snapshot = RepositorySnap.from_def(defs.get_repository_def())
    return {
        "location_import_cpu_seconds": loaded,
        "location_serialized_mb": len(serialize_value(snapshot)) / 1e6,
        "location_cpu_seconds": cpu_seconds(),
        "location_peak_mb": peak_mb(os.getpid()),
    }


def _dagster_alone() -> dict[str, float]:
    """The same for as many assets and checks that have nothing of the product: no text, condition, tag or sensor. They
    are made as `defs/op_asset.py` makes its own."""
    import dagster as dg
    from dagster._core.remote_representation.external_data import RepositorySnap
    from dagster_shared.serdes import serialize_value

    from iceberg_maint.defs.code_location.loading import keeping_all
    from iceberg_maint.defs.op_asset import build_op_asset

    listed = json.loads(Path(os.environ["ICEBERG_MAINT_TABLE_LIST"]).read_text("utf-8"))["tables"]
    before = cpu_seconds()
    with keeping_all():
        assets = []
        for *_, name in listed:
            for key, checks in ((name, 5), (f"{name}_2", 3)):
                partitions = dg.DynamicPartitionsDefinition(name=key) if checks == 5 else None
                specs = [
                    dg.AssetCheckSpec(f"c{n}", asset=key, partitions_def=partitions if n < 3 else None)
                    for n in range(checks)
                ]
                spec = dg.AssetSpec(key, partitions_def=partitions, deps=[] if checks == 5 else [name])
                assets.append(build_op_asset(spec, specs, f"op_{key}", name, "pyspark", lambda _: None))
        made = cpu_seconds()
        resource = dg.ResourceDefinition.hardcoded_resource(None)
        repository = dg.Definitions(assets=assets, resources={"pyspark": resource}).get_repository_def()
        serialize_value(RepositorySnap.from_def(repository))
    return {
        "dagster_alone_cpu_seconds": cpu_seconds() - before,
        "dagster_alone_snapshot_cpu_seconds": cpu_seconds() - made,
        "dagster_alone_peak_mb": peak_mb(os.getpid()),
    }


def _run() -> dict[str, float]:
    """One run of one healthy partition, in a process like those of Dagster's launchers."""
    import dagster as dg
    from dagster._core.definitions.reconstruct import ReconstructableJob, ReconstructableRepository
    from dagster._grpc.types import ExecuteRunArgs

    from iceberg_maint.core.model.ids import TableId
    from iceberg_maint.defs.translator import IcebergTranslator
    from iceberg_maint.wiring import load

    table, names = TableId.parse(TABLE), IcebergTranslator()
    partition = next(iter(load(Path(os.environ["ICEBERG_MAINT_CONFIG"])).ledger.health(table).partitions))
    with dg.DagsterInstance.get() as instance:
        instance.add_dynamic_partitions(names.get_partitions_name(table), [str(partition)])
        selection = frozenset({names.get_asset_key(table)})
        repository = ReconstructableRepository.for_module("iceberg_maint.definitions", "defs")
        job = ReconstructableJob(repository, "__ASSET_JOB", asset_selection=selection)
        origin = job.get_python_origin()
        run = instance.create_run_for_job(
            job.get_definition(),
            asset_selection=selection,
            job_code_origin=origin,
            tags={"dagster/partition": str(partition)},
        )
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        arguments = ExecuteRunArgs(origin, run.run_id, instance.get_ref()).get_command_args()
        subprocess.run([sys.executable, "-m", *arguments], check=True, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended = instance.get_run_by_id(run.run_id)
        assert ended is not None
        assert ended.status is dg.DagsterRunStatus.SUCCESS, ended.status
    return {"run_cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


def _ticks() -> dict[str, float]:
    """Two ticks of each sensor; the figures are those of the second, which has a cursor."""
    import dagster as dg

    from iceberg_maint.definitions import defs

    repository = defs.get_repository_def()
    seconds: dict[str, float] = {}
    cpu = 0.0
    with dg.DagsterInstance.get() as instance:
        for sensor in repository.sensor_defs:
            cursor: str | None = None
            for _ in range(2):
                began, cpu_before = time.monotonic(), cpu_seconds()
                context = dg.build_sensor_context(
                    instance, cursor, repository_def=repository, sensor_name=sensor.name
                )
                result = sensor.evaluate_tick(context)
                seconds[sensor.name], used = time.monotonic() - began, cpu_seconds() - cpu_before
                cursor = result.cursor
            cpu += used
    return {
        "longest_tick_seconds": max(seconds.values()),
        "all_ticks_cpu_seconds": cpu,
        "sensors": len(seconds),
        **{f"tick_{name}_seconds": seconds[name] for name in ("table_changes", "maintenance_0")},
    }


def _cycle() -> dict[str, float]:
    """Writers commit to some tables. The tick finds them, the run observes them, and the ticks of the automation decide
    and request. Dagster has observed these tables before; of the others only the last observation is stored."""
    import dagster as dg

    from bench.fleet_tables import change
    from iceberg_maint.definitions import defs
    from iceberg_maint.defs.last_observation import LastObservation, store_last_observation
    from iceberg_maint.defs.translator import IcebergTranslator
    from iceberg_maint.wiring import load

    config = Path(os.environ["ICEBERG_MAINT_CONFIG"])
    repository, ledger, names = defs.get_repository_def(), load(config).ledger, IcebergTranslator()
    with dg.DagsterInstance.get() as instance:
        for table in ledger.known_tables():
            observed = LastObservation(pointer=table.pointer, observed_ms=ledger.now_ms())
            store_last_observation(instance, names.get_asset_key(table.table), observed)

        def tick(name: str) -> Any:
            sensor = repository.get_sensor_def(name)
            context = dg.build_sensor_context(instance, repository_def=repository, sensor_name=name)
            return sensor.evaluate_tick(context).run_requests or ()

        job = repository.get_job("observe_iceberg")
        first = [f"lake.db.t{n:05d}" for n in range(CHANGED)]
        observe = {"ops": {"observe_tables": {"config": {"tables": first, "changed_only": False}}}}
        assert job.execute_in_process(observe, instance=instance).success
        sensors = [s.name for s in repository.sensor_defs if s.name.startswith("maintenance_")]
        for name in sensors:
            tick(name)
        change(config.parent, CHANGED)
        began, cpu_before = time.monotonic(), cpu_seconds()
        [request] = tick("table_changes")
        found, cpu_found = time.monotonic(), cpu_seconds()
        assert job.execute_in_process(request.run_config, instance=instance, tags=request.tags).success
        seen, cpu_seen = time.monotonic(), cpu_seconds()
        requested = sum(len(tick(name)) for name in sensors)
        ended, cpu_ended = time.monotonic(), cpu_seconds()
    return {
        "cycle_cpu_seconds": cpu_ended - cpu_before,
        "cycle_seconds": ended - began,
        "cycle_find_cpu_seconds": cpu_found - cpu_before,
        "cycle_observe_cpu_seconds": cpu_seen - cpu_found,
        "cycle_decide_cpu_seconds": cpu_ended - cpu_seen,
        "cycle_find_seconds": found - began,
        "cycle_observe_seconds": seen - found,
        "cycle_runs_requested": requested,
    }


WORKERS: dict[str, Any] = {
    "location": _location,
    "dagster_alone": _dagster_alone,
    "run": _run,
    "ticks": _ticks,
    "cycle": _cycle,
}

if __name__ == "__main__":
    sys.exit(main())
