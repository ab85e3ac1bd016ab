"""A run worker that stands still past its lease, while Dagster's daemon starts another run of its table."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from iceberg_maint.ledger.ledger import sql_ledger
from iceberg_maint_tests.qualification.daemon_kills.__main__ import World
from iceberg_maint_tests.qualification.daemon_kills.daemon import Victim
from iceberg_maint_tests.qualification.daemon_kills.lake import MIN_INPUT_FILES
from iceberg_maint_tests.qualification.daemon_kills.moments import Moment, since_now, started_runs

NAME = "db.a"

pytestmark = [
    pytest.mark.seconds,
    pytest.mark.spark,
    pytest.mark.timeout(420),
    pytest.mark.together("programs"),
    pytest.mark.long(280),
    pytest.mark.variant,  # two minutes; defs/test_table_run.py has the lost lease without processes
]


def stopped(world: World, folder: Path) -> list[psutil.Process]:
    """The run worker and its JVM, stopped while they hold no lock of a SQLite file: nobody could write to it."""
    while True:
        processes = world.daemon.suspend(Victim.WORKER, Victim.JVM)
        if all(map(is_free, folder.rglob("*.db"))):
            return processes
        resume(processes)
        time.sleep(0.05)


def resume(processes: list[psutil.Process]) -> None:
    for process in processes:
        process.resume()


def is_free(file: Path) -> bool:
    with closing(sqlite3.connect(file, timeout=0)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        return True


def test_worker_stopped_past_its_lease_says_that_it_lost_it_and_has_one_record(tmp_path: Path) -> None:
    world = World(tmp_path, "  remove_orphan_files: {enabled: false}\n")
    world.daemon.start()
    processes: list[psutil.Process] = []
    try:
        at_work = since_now(Moment.ATTEMPT_STARTED, world.ledger_url, world.instance)
        for _ in range(MIN_INPUT_FILES):
            world.lake.append(NAME)
        assert world.wait(at_work, 120, every_seconds=0.05)
        [run] = started_runs(world.instance)
        processes = stopped(world, tmp_path)
        assert world.wait(lambda: world.lake.is_healed(NAME), 240)
        resume(processes)
        assert world.wait(lambda: not any(map(is_at_work, processes)), 120)
        said = [e.user_message for e in world.instance.all_logs(run.run_id)]
        assert (
            "p=1: not maintained (lease_held): the run lost the lease of the table; the next run continues"
            in said
        )
        [record] = sql_ledger(world.ledger_url).records.of_run(run.run_id)
        assert (record.outcome.outcome, record.outcome.reason) == ("FAILED", "crashed")
        assert world.lake.faults(NAME) == []
        assert world.left_behind() == []
    finally:
        resume([p for p in processes if is_at_work(p)])
        world.daemon.kill(Victim.ALL)
        world.instance.dispose()
        world.lake.catalog.close()


def is_at_work(process: psutil.Process) -> bool:
    return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
