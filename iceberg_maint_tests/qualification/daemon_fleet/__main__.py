"""Lets a real Dagster maintain a fleet, and asks whether a tick or a run was lost.

    python -m iceberg_maint_tests.qualification.daemon_fleet [--tables 2000] [--minutes 30] [--shards 4] [--storage postgres]

`dagster dev` has the workspace that `iceberg-maint shards` writes, with the intervals of production. It has observed no
table at the beginning. Each minute writers commit to some healthy tables and make some others sick, which runs must heal.
At the end every tick must have begun in time and succeeded, no run may be lost or fail, all tables must be healthy, and their
rows those that were written. Prints per minute the CPU seconds, the runs and the sick tables. Exits 1 for a fault.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import dagster as dg
import sqlalchemy as sa
import yaml
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES

from iceberg_maint.core.model.ids import TableId, in_shard
from iceberg_maint.defs.automation.maintenance_sensor import TABLES_PER_SENSOR
from iceberg_maint.defs.names import INSTANCE, WORKSPACE, home_file, sharded_workspace
from iceberg_maint_tests.qualification.daemon_fleet.lake import Lake
from iceberg_maint_tests.qualification.daemon_fleet.processes import Dagster
from iceberg_maint_tests.qualification.daemon_fleet.ticks import (
    Sensor,
    faults_of_runs,
    faults_of_ticks,
    read_sensors,
)
from iceberg_maint_tests.support import jvm
from iceberg_maint_tests.support.servers.postgres import postgres_server

SENSORS_OF_A_LOCATION = 3
"""`table_changes`, `lost_runs` and `old_runs`; those of the automation follow from the number of tables."""
_START_SECONDS, _HEAL_SECONDS = 240, 900
_LOOK_SECONDS = 5


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    options.add_argument("--tables", type=int, default=2000)
    options.add_argument("--real", type=int, default=60, help="tables with rows, which become sick")
    options.add_argument("--minutes", type=float, default=30)
    options.add_argument("--shards", type=int, default=4)
    options.add_argument("--storage", choices=("postgres", "sqlite"), default="postgres")
    options.add_argument("--changed", type=int, default=20, help="healthy tables written to per minute")
    options.add_argument("--sick", type=int, default=2, help="tables made sick per minute")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--folder", type=Path, help="a new folder, kept; without it a temporary one")
    given = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended before its end"))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        faults = _run(given, given.folder or Path(temporary))
    print("\n".join(faults) or f"{given.tables} tables for {given.minutes:g} minutes: no fault")
    return min(len(faults), 1)


def _run(given: argparse.Namespace, folder: Path) -> list[str]:
    with ExitStack() as stack:
        addresses, data = stack.enter_context(_databases(given.storage, folder))
        lake = Lake(folder, given.tables, given.real, addresses["catalog"], addresses["ledger"])
        stack.callback(lake.close)
        home = _home(folder, lake, given, addresses["dagster"])
        # First, because Dagster's processes must not make its database at the same time.
        instance = stack.enter_context(dg.DagsterInstance.from_config(str(home)))
        environ = {
            "ICEBERG_MAINT_CONFIG": str(lake.config),
            "ICEBERG_MAINT_TABLE_LIST": str(folder / "tables.json"),
            **jvm.environment(),
        }
        dagster = Dagster(home, environ, data)
        stack.callback(dagster.stop)
        return Watch(given, lake, instance, dagster).faults()


@contextmanager
def _databases(storage: str, folder: Path) -> Iterator[tuple[dict[str, str], Path | None]]:
    """The addresses of catalog, ledger and Dagster's storage (empty: SQLite in its home), and PostgreSQL's folder."""
    if storage == "sqlite":
        yield {n: f"sqlite:///{folder}/{n}.db" for n in ("catalog", "ledger")} | {"dagster": ""}, None
        return
    with postgres_server() as server:
        admin = sa.create_engine(server.url, isolation_level="AUTOCOMMIT")
        names = ("catalog", "ledger", "dagster")
        with admin.connect() as connection:
            for name in names:
                connection.execute(sa.text(f"CREATE DATABASE {name}"))
        admin.dispose()
        yield {n: f"{server.url.rpartition('/')[0]}/{n}" for n in names}, server.folder


def _home(folder: Path, lake: Lake, given: argparse.Namespace, storage: str) -> Path:
    """The files that `iceberg-maint shards` writes into a DAGSTER_HOME, with PostgreSQL and two runs at once as its
    comments say."""
    home = folder / "home"
    home.mkdir()
    settings = yaml.safe_load(home_file(INSTANCE))
    if storage:
        settings["storage"] = {"postgres": {"postgres_url": storage}}
        runs = settings["concurrency"]["runs"]
        runs["max_concurrent_runs"] = 2
        runs["tag_concurrency_limits"][0]["limit"] = 2
    (home / INSTANCE).write_text(yaml.safe_dump(settings), "utf-8")
    (home / WORKSPACE).write_text(sharded_workspace(given.shards), "utf-8")
    tables = [name.split(".") for name in lake.names()]
    (folder / "tables.json").write_text(json.dumps({"version": 1, "tables": tables}), "utf-8")
    return home


class Watch:
    """Writes to the lake for a time while Dagster maintains it, and judges what Dagster did."""

    def __init__(
        self, given: argparse.Namespace, lake: Lake, instance: dg.DagsterInstance, dagster: Dagster
    ) -> None:
        self._given, self._lake, self._instance, self._dagster = given, lake, instance, dagster
        self._draw = random.Random(given.seed)
        self._began = time.monotonic()
        self._cpu_before = 0.0

    def faults(self) -> list[str]:
        """What is wrong in the end."""
        if not self._wait(self._all_sensors_tick, _START_SECONDS):
            return ["Dagster did not start:", self._dagster.last_lines()]
        since = time.time()
        print(f"{self._seconds():6.0f} s  all sensors tick", flush=True)
        self._write()
        healed = self._wait(self._is_at_rest, _HEAL_SECONDS)
        until = time.time()
        self._print_minute("at rest" if healed else "not at rest")
        sensors = [self._within(s, since) for s in read_sensors(self._instance)]
        self._print_ticks(sensors, since, until)
        found = [f"{name} is not healed" for name in self._lake.sick()]
        for sensor in sensors:
            found += faults_of_ticks(sensor, since, until)
        found += faults_of_runs(self._instance) + self._dagster.faults() + self._lake.faults()
        return found

    def _write(self) -> None:
        """Commits each minute until the time is over."""
        began = time.monotonic()
        for minute in range(1, round(self._given.minutes) + 1):
            end = began + minute * 60
            self._lake.change(self._draw, self._given.changed)
            for name in self._draw.sample(self._lake.real, self._given.sick):
                self._lake.make_sick(name)
            while time.monotonic() < end and self._dagster.is_running():
                time.sleep(1)
            self._print_minute(f"minute {minute}")

    def _print_minute(self, what: str) -> None:
        now = self._dagster.cpu_seconds()
        runs = Counter(r.status.value for r in self._instance.get_runs())
        line = {
            "cpu_seconds": round(now - self._cpu_before, 1),
            "sick": len(self._lake.sick()),
            "runs": dict(sorted(runs.items())),
        }
        self._cpu_before = now
        print(f"{self._seconds():6.0f} s  {what}  {json.dumps(line)}", flush=True)

    def _print_ticks(self, sensors: list[Sensor], since: float, until: float) -> None:
        kinds: dict[str, list[Sensor]] = {}
        for sensor in sensors:
            kinds.setdefault(sensor.name.split()[-1].rstrip("0123456789").rstrip("_"), []).append(sensor)
        for kind, of_kind in sorted(kinds.items()):
            seconds = [s for sensor in of_kind for s in sensor.seconds()]
            gaps = [gap for sensor in of_kind for gap in sensor.gaps(since, until)]
            statuses = Counter(t.status.value for sensor in of_kind for t in sensor.ticks)
            line: dict[str, Any] = {
                "sensors": len(of_kind),
                "interval": of_kind[0].interval_seconds,
                "ticks": dict(sorted(statuses.items())),
                "seconds": {"median": round(median(seconds), 2), "longest": round(max(seconds), 2)},
                "longest_gap": round(max(gaps), 1),
            }
            print(f"{kind}: {json.dumps(line)}", flush=True)

    def _within(self, sensor: Sensor, since: float) -> Sensor:
        return Sensor(sensor.name, sensor.interval_seconds, [t for t in sensor.ticks if t.began >= since])

    def _all_sensors_tick(self) -> bool:
        tables = [TableId.parse(name) for name in self._lake.names()]
        shards = range(self._given.shards)
        counts = [sum(in_shard(t, n, self._given.shards) for t in tables) for n in shards]
        expected = sum(SENSORS_OF_A_LOCATION + -(-count // TABLES_PER_SENSOR) for count in counts)
        ticking = [s for s in read_sensors(self._instance) if s.ticks]
        return len(ticking) >= expected

    def _is_at_rest(self) -> bool:
        """Whether no run is under way and no table is sick."""
        pending = self._instance.get_runs(dg.RunsFilter(statuses=NOT_FINISHED_STATUSES), limit=1)
        return not pending and not self._lake.sick()

    def _wait(self, done: Any, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end or not self._dagster.is_running():
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def _seconds(self) -> float:
        return time.monotonic() - self._began


if __name__ == "__main__":
    sys.exit(main())
