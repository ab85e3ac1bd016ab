"""Dagster over a fleet of small tables: the code location, the start of a run, the ticks of the sensors, and the cycle.

    python -m bench.dagster.locations [--tables 10000] [--shards 4] [--rounds 1] [--parts location ticks cycle]

Every part is a process of its own, once with all tables in one code location and once with the locations of
`iceberg-maint shards`. The run materializes one healthy partition, in the worker process that Dagster's
launchers start. The ticks are the first and the second of each sensor, with every table measured by the command line,
none observed by Dagster, and nothing due. The cycle is that of Dagster after writers have committed to 100 tables: the tick
that finds them, the observe run, and the ticks that decide and request; the locations do it at the same time. Exits 1 when
a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from bench.fleet.tables import change, make_fleet_catalog, write_config
from bench.record import publish
from bench.used import cpu_seconds, peak_mb

if TYPE_CHECKING:
    import dagster as dg

PROJECT = Path(__file__).resolve().parents[2]
PARTS = ("location", "dagster_alone", "run", "ticks", "cycle")
LOCATION_CPU_SECONDS, LOCATION_PEAK_MB = 15.0, 500.0
RUN_CPU_SECONDS, TICK_SECONDS, CYCLE_SECONDS = 6.0, 10.0, 60.0
CHANGED = 100


def main() -> int:
    """Prints a table and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--worker", choices=PARTS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        print(json.dumps(WORKERS[given.worker]()))
        return 0
    return _compare(given.tables, given.shards, given.rounds, given.parts)


def limits(tables: int, shards: int) -> dict[str, float]:
    """The targets: those at 10,000 tables, in proportion where the cost is per table, with what a location without
    tables costs. One location of many tables need not hold those of a location: there are several for that."""
    split = f"{shards} locations: "
    share = tables / 10_000
    return {
        f"{split}location_cpu_seconds": 3 + (LOCATION_CPU_SECONDS - 3) * share,
        f"{split}location_peak_mb": 200 + (LOCATION_PEAK_MB - 200) * share,
        "run_cpu_seconds": RUN_CPU_SECONDS,
        **{f"{place}longest_tick_seconds": TICK_SECONDS for place in ("", split)},
        **{f"{place}cycle_seconds": CYCLE_SECONDS for place in ("", split)},
    }


def _compare(tables: int, shards: int, rounds: int, parts: list[str]) -> int:
    from rich.console import Console
    from rich.table import Table

    runs: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-dagster-") as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        _home(made, tables)
        for count in [count for _ in range(rounds) for count in dict.fromkeys((1, shards))]:
            prefix = "" if count == 1 else f"{count} locations: "
            for part in [p for p in parts if count == 1 or p not in ("dagster_alone", "run")]:
                for name, value in _measure(part, Path(scratch) / "home", made, count).items():
                    runs.setdefault(f"{prefix}{name}", []).append(value)
    figures = {name: round(statistics.median(values), 2) for name, values in runs.items()}
    targets = {name: limit for name, limit in limits(tables, shards).items() if name in figures}
    missed = [name for name, limit in targets.items() if figures[name] > limit]
    load = [round(n, 1) for n in os.getloadavg()]
    table = Table(f"{tables:,} tables (median of {rounds}), load {load[2]:g}", "measured", "limit")
    for name, value in figures.items():
        limit = f"{targets[name]:g}" if name in targets else ""
        table.add_row(name.replace("_", " "), f"{value:g}{' MISSED' if name in missed else ''}", limit)
    Console(width=120).print(table)
    publish("dagster_fleet", {**figures, "limits": targets, "missed": missed, "load": load})
    return int(bool(missed))


def _measure(part: str, home: Path, made: Path, shards: int) -> dict[str, float]:
    """The figures of a part on a fresh copy of the fleet: the highest of the locations, of a cycle the sum of their CPU."""
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(made, home)
    write_config(home)
    # The locations load one after the other; their cycles begin at once.
    workers = [_start(part, _environ(home, index, shards)) for index in range(shards)]
    if part == "cycle":
        change(home, CHANGED)
        for worker in workers:
            cast("IO[str]", worker.stdin).write("\n")
            cast("IO[str]", worker.stdin).flush()
    results: list[dict[str, float]] = [json.loads(_last(worker)) for worker in workers]
    return {
        name: (sum if part == "cycle" and not name.endswith("_seconds") else max)(r[name] for r in results)
        for name in results[0]
    }


def _home(home: Path, tables: int) -> None:
    """Makes the fleet with its configuration, its table list and a DAGSTER_HOME, and measures every table."""
    make_fleet_catalog(home, tables)
    config = write_config(home)
    (home / "dagster").mkdir()
    template = PROJECT / "iceberg_maint" / "defs" / "dagster.yaml"
    (home / "dagster" / "dagster.yaml").write_text(template.read_text("utf-8"), "utf-8")
    table_list = [["lake", "db", f"t{n:05d}"] for n in range(tables)]
    (home / "tables.json").write_text(json.dumps({"version": 1, "tables": table_list}), "utf-8")
    command = [sys.executable, "-m", "iceberg_maint", "observe", "--json"]
    quiet = subprocess.DEVNULL
    environ = {**os.environ, "ICEBERG_MAINT_CONFIG": str(config)}
    subprocess.run(command, cwd=PROJECT, env=environ, stdout=quiet, stderr=quiet, check=True)


def _environ(home: Path, index: int, shards: int) -> dict[str, str]:
    return {
        **os.environ,
        "ICEBERG_MAINT_CONFIG": str(home / "iceberg_maint.yaml"),
        "ICEBERG_MAINT_TABLE_LIST": str(home / "tables.json"),
        "SHARD": f"shard_{index}_of_{shards}",
        "DAGSTER_HOME": str(home / "dagster"),
    }


def _start(part: str, environ: dict[str, str]) -> subprocess.Popen[str]:
    """The process of a part, after its end; that of a cycle when it is ready to begin."""
    worker = subprocess.Popen(
        [sys.executable, "-m", "bench.dagster.locations", "--worker", part],
        cwd=PROJECT,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    if part == "cycle":
        _expect(worker, "ready")
    else:
        worker.wait()
    return worker


def _expect(worker: subprocess.Popen[str], line: str) -> None:
    for text in cast("IO[str]", worker.stdout):
        if text.strip() == line:
            return
    raise SystemExit(f"a worker ended with {worker.wait()}")


def _last(worker: subprocess.Popen[str]) -> str:
    lines = cast("IO[str]", worker.stdout).read().splitlines()
    if worker.wait() or not lines:
        raise SystemExit(f"a worker ended with {worker.returncode}")
    return lines[-1]


def _definitions() -> dg.Definitions:
    """The definitions of the shard that the variable SHARD names as an attribute."""
    from iceberg_maint.defs import load_definitions

    return cast("dg.Definitions", getattr(load_definitions, os.environ["SHARD"]))


def _location() -> dict[str, float]:
    """What a code server does before it serves: import, repository, snapshot, serialization."""
    from dagster._core.remote_representation.external_data import RepositorySnap
    from dagster_shared.serdes import serialize_value

    defs = _definitions()

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
    are made as `defs/assets/asset_definitions.py` makes its own."""
    import dagster as dg
    from dagster._core.remote_representation.external_data import RepositorySnap
    from dagster_shared.serdes import serialize_value

    from iceberg_maint.defs.assets.op_asset import Op, build_op_asset
    from iceberg_maint.defs.load_definitions import keeping_all

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
                assets.append(build_op_asset(spec, specs, Op(f"op_{key}", name, lambda _: None)))
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
    from iceberg_maint.wiring.adapters import load

    table, names = TableId.parse("lake.db.t00000"), IcebergTranslator()
    measured = load(Path(os.environ["ICEBERG_MAINT_CONFIG"])).ledger.health.get(table)
    assert measured is not None
    partition = next(iter(measured.partitions))
    with dg.DagsterInstance.get() as instance:
        instance.add_dynamic_partitions(names.get_partitions_name(table), [str(partition)])
        selection = frozenset({names.get_asset_key(table)})
        repository = ReconstructableRepository.for_module(
            "iceberg_maint.defs.load_definitions", os.environ["SHARD"]
        )
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
    """Two ticks of each sensor. Before the first ones Dagster has observed no table; the second ones have a cursor."""
    import dagster as dg

    defs = _definitions()

    repository = defs.get_repository_def()
    seconds: dict[str, float] = {}
    cpu = [0.0, 0.0]
    with dg.DagsterInstance.get() as instance:
        for sensor in repository.sensor_defs:
            cursor: str | None = None
            for number in range(2):
                began, cpu_before = time.monotonic(), cpu_seconds()
                context = dg.build_sensor_context(
                    instance, cursor, repository_def=repository, sensor_name=sensor.name
                )
                result = sensor.evaluate_tick(context)
                took = time.monotonic() - began
                seconds[sensor.name] = max(took, seconds.get(sensor.name, 0))
                cpu[number] += cpu_seconds() - cpu_before
                cursor = result.cursor
    return {
        "longest_tick_seconds": max(seconds.values()),
        "first_ticks_cpu_seconds": cpu[0],
        "second_ticks_cpu_seconds": cpu[1],
        "sensors": len(seconds),
        **{f"tick_{name}_seconds": seconds[name] for name in ("table_changes", "due_maintenance")},
    }


def _cycle() -> dict[str, float]:
    """Writers have committed to some tables. The tick finds them, the run observes them, and the ticks of the automation
    decide and request. Dagster has observed these tables before; of the others only the last observation is stored."""
    import dagster as dg

    from iceberg_maint.core.model.ids import in_shard
    from iceberg_maint.defs.automation.observations import LastObservation, store_last_observations
    from iceberg_maint.defs.names import OBSERVE_JOB
    from iceberg_maint.defs.translator import IcebergTranslator
    from iceberg_maint.wiring.adapters import load

    config = Path(os.environ["ICEBERG_MAINT_CONFIG"])
    _, index, _, count = os.environ["SHARD"].split("_")
    repository, ledger, names = _definitions().get_repository_def(), load(config).ledger, IcebergTranslator()
    tables = [t for t in ledger.health.known_tables() if in_shard(t.table, int(index), int(count))]
    changed = [str(t.table) for t in tables if int(t.table.name[1:]) < CHANGED]
    with dg.DagsterInstance.get() as instance:
        now_ms = ledger.registry.now_ms()
        for start in range(0, len(tables), 1000):
            observed = {
                names.get_asset_key(t.table): LastObservation(pointer=t.pointer, observed_ms=now_ms)
                for t in tables[start : start + 1000]
            }
            store_last_observations(instance, observed)

        def tick(name: str) -> Any:
            began = time.monotonic()
            sensor = repository.get_sensor_def(name)
            context = dg.build_sensor_context(instance, repository_def=repository, sensor_name=name)
            requests = sensor.evaluate_tick(context).run_requests or ()
            longest[0] = max(longest[0], time.monotonic() - began)
            return requests

        longest = [0.0]
        job = repository.get_job(OBSERVE_JOB)
        observe = {"ops": {"observe_tables": {"config": {"tables": changed, "changed_only": False}}}}
        assert job.execute_in_process(observe, instance=instance).success
        sensors = [s.name for s in repository.sensor_defs if s.name.startswith("due_maintenance")]
        for name in sensors:
            tick(name)
        print("ready", flush=True)
        sys.stdin.readline()
        longest[0] = 0.0
        began, cpu_before = time.monotonic(), cpu_seconds()
        # Where Dagster's queue has few slots, one location observes at a time. Real ticks are a minute apart.
        while not (requests := tick("table_changes")):
            time.sleep(1)
        [request] = requests
        found, cpu_found = time.monotonic(), cpu_seconds()
        assert job.execute_in_process(request.run_config, instance=instance, tags=request.tags).success
        seen, cpu_seen = time.monotonic(), cpu_seconds()
        requested = sum(len(tick(name)) for name in sensors)
        ended, cpu_ended = time.monotonic(), cpu_seconds()
    return {
        "cycle_seconds": ended - began,
        "cycle_find_seconds": found - began,
        "cycle_observe_seconds": seen - found,
        "cycle_longest_tick_seconds": longest[0],
        "cycle_cpu": cpu_ended - cpu_before,
        "cycle_find_cpu": cpu_found - cpu_before,
        "cycle_observe_cpu": cpu_seen - cpu_found,
        "cycle_decide_cpu": cpu_ended - cpu_seen,
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
