"""Ends of drivers and workers in the middle of a rewrite, and what a cluster must have: `make qualify SUITE=cluster`.

    python -m iceberg_maint_tests.qualification.cluster.trials --cache CACHE [--keep FOLDER] [--archive FILE]

Every table has three partitions of four files, and every batch is one partition. The columnar engine rewrites them.

- The Python process or the JVM of a driver is killed while an executor writes a file of the second batch, while the driver
  writes the manifest list of its commit, and while the catalog writes the metadata of that commit. The next run ends the
  work: each batch is committed once.
- A worker is decommissioned while its executor writes a file. The file is committed.
- The executors' Python has none of the packages. With the archive they come from it, without it `native` writes.
- Deploy mode `cluster` is refused. The event logs are read by Spark's history server and have no secret.

DuckDB compares the rows.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from iceberg_maint_tests.qualification.cluster import store as s3
from iceberg_maint_tests.qualification.cluster.configuration import (
    PACKAGES,
    Addresses,
    configuration,
    write_backend,
)
from iceberg_maint_tests.qualification.cluster.event_log import check_event_logs
from iceberg_maint_tests.qualification.cluster.processes import command_of, descendants
from iceberg_maint_tests.qualification.cluster.rows import Rows
from iceberg_maint_tests.qualification.cluster.servers import (
    EXECUTOR,
    PYTHON_WORKER,
    START_SECONDS,
    WORKER,
    Suite,
    committed,
    data_file_of,
    document_of,
    servers,
    table_folder,
)
from iceberg_maint_tests.qualification.cluster.spark_cluster import wait_for_log
from iceberg_maint_tests.qualification.cluster.trial_tables import FILES, PARTITIONS, TrialTable, make_tables

_CONF = """\
    spark.decommission.enabled: true
    spark.storage.decommission.enabled: true
    spark.storage.decommission.shuffleBlocks.enabled: true
    spark.eventLog.enabled: true
    spark.eventLog.dir: file://{folder}/events
"""
_POLICY = """\
defaults:
  windows: {{max_partitions_per_batch: 1}}
  retry: {{backoff_seconds: 0}}
"""
_DRIVER_JVM = "org.apache.spark.deploy.SparkSubmit"
WITHOUT_ARCHIVE = "without_archive.yaml"
CLUSTER_MODE = "cluster_mode.yaml"
DECOMMISSIONED, WITHOUT_PACKAGES = "decommissioned", "without_packages"


@dataclass(frozen=True, slots=True)
class Death:
    """A death of the driver: when a process writes an object of the second batch, and which process is killed."""

    table: str
    moment: str
    matches: Callable[[str], bool]
    kills_jvm: bool


def _metadata(table: str, beginning: str, end: str) -> Callable[[str], bool]:
    folder = f"/{table_folder(table)}metadata/"
    return lambda path: (
        folder in path and path.rpartition("/")[2].startswith(beginning) and path.endswith(end)
    )


DEATHS = (
    Death("killed_writing", "an executor writes a file", data_file_of("killed_writing"), kills_jvm=False),
    Death(
        "jvm_killed_writing", "an executor writes a file", data_file_of("jvm_killed_writing"), kills_jvm=True
    ),
    Death(
        "killed_committing",
        "the driver writes a manifest list",
        _metadata("killed_committing", "snap-", ".avro"),
        kills_jvm=True,
    ),
    Death(
        "killed_swapping",
        "the catalog writes the metadata of the commit",
        _metadata("killed_swapping", "", ".metadata.json"),
        kills_jvm=False,
    ),
)
TABLES = (*(d.table for d in DEATHS), DECOMMISSIONED, WITHOUT_PACKAGES)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make qualify SUITE=cluster")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--keep", type=Path, help="the folder of logs, which stays; default: a temporary one")
    parser.add_argument(
        "--archive", type=Path, help="packages for the executors; default: those of this environment"
    )
    parser.add_argument(
        "--only", nargs="*", default=TABLES, choices=TABLES, help="the trials of these tables"
    )
    given = parser.parse_args(arguments)
    with ExitStack() as stack:
        if given.keep is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cluster-")))
        else:
            given.keep.mkdir(parents=True)
            folder = given.keep.absolute()
        return run(folder, given.cache, given.archive, given.only)


def run(folder: Path, cache: Path, packages: Path | None, names: Sequence[str]) -> int:
    """Runs the trials of these tables in a folder. Returns 1 if a check failed."""
    (folder / "events").mkdir()
    deaths = [d for d in DEATHS if d.table in names]
    with servers(folder, cache, _configure, packages) as suite:
        tables = make_tables(suite.addresses, names)
        rows = Rows(folder, names)
        rows.copy()
        suite.say(f"{len(tables)} tables of {PARTITIONS} partitions with {FILES} files made by PyIceberg")
        _try(suite, "deploy mode cluster", lambda: _refuse_cluster_mode(suite, names[0]))
        for death in deaths:
            _try(suite, death.table, partial(_kill_driver, suite, death, tables[death.table]))
        if DECOMMISSIONED in names:
            _try(suite, DECOMMISSIONED, lambda: _decommission(suite, tables[DECOMMISSIONED]))
        if WITHOUT_PACKAGES in names:
            _try(suite, WITHOUT_PACKAGES, lambda: _run_without_packages(suite))
        _try(
            suite,
            "event logs",
            lambda: check_event_logs(suite, folder / "events", sum(d.kills_jvm for d in deaths)),
        )
        for name, comparison in rows.compare().items():
            suite.check(comparison.equal, f"{name}: {comparison.rows_after} rows, equal before and after")
        return suite.end()


def _try(suite: Suite, name: str, trial: Callable[[], None]) -> None:
    """Runs a trial. One that raises fails, and the next ones run."""
    try:
        trial()
    except Exception:  # noqa: BLE001 - whatever ends a trial must not end the others
        suite.check(False, f"{name}: {traceback.format_exc()}")


def _configure(folder: Path, addresses: Addresses, master: str) -> None:
    write_backend(folder, addresses)
    variants = {
        "iceberg_maint.yaml": PACKAGES + _CONF,
        WITHOUT_ARCHIVE: _CONF,
        CLUSTER_MODE: PACKAGES + "    spark.submit.deployMode: cluster\n",
    }
    for name, conf in variants.items():
        (folder / name).write_text(configuration(folder, addresses, master, conf + _POLICY), encoding="utf-8")


def _refuse_cluster_mode(suite: Suite, table: str) -> None:
    config = suite.folder / CLUSTER_MODE
    for command in (("doctor", "--no-spark"), ("run", f"lake.demo.{table}")):
        code, document = suite.document(*command, config=config)
        suite.check(
            code == 3 and "ICM-164" in str(document),
            f"{command[0]} refuses deploy mode cluster: exit code {code}, ICM-164",
        )


def _run_without_packages(suite: Suite) -> None:
    """Runs without the archive: the executors' Python must lack the packages."""
    lacks = [m for m in ("pyarrow", "pyiceberg", "iceberg_maint", "pyspark") if not _imports(m)]
    suite.check(
        len(lacks) == 4, f"the Python of the executors has no packages: cannot import {', '.join(lacks)}"
    )
    run = ("run", f"lake.demo.{WITHOUT_PACKAGES}", "--operation", "rewrite_data_files")
    code, document = suite.document(*run, config=suite.folder / WITHOUT_ARCHIVE)
    batches = _batches(document)
    note = str(document)
    suite.check(
        code == 0 and len(batches) == PARTITIONS and "cannot import pyarrow" in note,
        f"without the archive {len(batches)} batches are written by native: the note says why",
    )
    writers = suite.store.writers.get(WITHOUT_PACKAGES, [])
    suite.check(
        bool(writers) and not any(PYTHON_WORKER in w.command for w in writers),
        "without the archive no Python worker writes a file",
    )


def _imports(module: str) -> bool:
    python = Path(sys.executable).resolve()
    done = subprocess.run(
        [python, "-c", f"import {module}"], env={}, cwd="/", capture_output=True, check=False
    )
    return done.returncode == 0


def _kill_driver(suite: Suite, death: Death, table: TrialTable) -> None:
    """Kills the driver of a run in its second batch, then runs again."""
    first = len(committed(death.table))

    def is_second(path: str) -> bool:
        return death.matches(path) and len(committed(death.table)) == first + 1

    with suite.store.delaying(is_second) as watch:
        program = suite.program("run", f"lake.demo.{death.table}", "--operation", "rewrite_data_files")
        caught = watch.caught.wait(START_SECONDS)
        own = descendants(program.pid)
        executors = [p for p in descendants(os.getpid()) if EXECUTOR in command_of(p)]
        (jvm,) = [p for p in own if _DRIVER_JVM in command_of(p)]
        if death.table == DEATHS[0].table and watch.writer is not None:
            _check_packages(suite, watch.writer.pid)
        victim = jvm if death.kills_jvm else program.pid
        os.kill(victim, signal.SIGKILL)
        suite.check(
            caught and len(committed(death.table)) == first + 1,
            f"{death.table}: {'JVM' if death.kills_jvm else 'process'} {victim} of the driver is killed while "
            f"{death.moment}, after one commit ({watch.key})",
        )
        if not death.kills_jvm:
            s3.wait_for(lambda: not command_of(jvm), 60, "the JVM of a dead driver runs")
    code, _ = document_of(program)
    suite.say(f"     the killed run ended with {code}")
    s3.wait_for(
        lambda: not any(EXECUTOR in command_of(p) for p in executors), 120, "executors of a dead driver"
    )
    at_death = table.batches()
    code, document = suite.document("run", f"lake.demo.{death.table}", "--operation", "rewrite_data_files")
    batches = table.batches()
    suite.check(
        code == 0 and len(batches) == len(set(batches)) == PARTITIONS and table.files() == PARTITIONS,
        f"{death.table}: {len(at_death)} batches were committed when the driver was dead; the next run committed "
        f"{len(_batches(document))}; each of {len(set(batches))} batches is committed once",
    )


def _check_packages(suite: Suite, writer: int) -> None:
    maps = Path(f"/proc/{writer}/maps").read_text()
    loaded = {line.split()[-1] for line in maps.splitlines() if "libarrow.so" in line}
    unpacked = [
        p for p in loaded if p.startswith(f"{suite.folder}/worker-") and "/dependencies/pyarrow/" in p
    ]
    suite.check(
        bool(loaded) and len(unpacked) == len(loaded),
        f"Python worker {writer} has loaded Arrow from the archive that its executor unpacked",
    )


def _decommission(suite: Suite, table: TrialTable) -> None:
    """Decommissions the worker whose executor writes a file of the first batch."""
    with suite.store.delaying(data_file_of(DECOMMISSIONED)) as watch:
        program = suite.program("run", f"lake.demo.{DECOMMISSIONED}", "--operation", "rewrite_data_files")
        watch.caught.wait(START_SECONDS)
        writer = watch.writer
        worker, executor = (writer.nearest(WORKER), writer.nearest(EXECUTOR)) if writer else (None, None)
        if worker is None or executor is None or writer is None:
            suite.check(False, f"an executor writes a file of {DECOMMISSIONED}: {writer}")
            program.kill()
            return
        os.kill(worker, signal.SIGPWR)
        log = suite.folder / f"worker-{suite.cluster.workers.index(worker)}.log"
        wait_for_log(log, "ecommission")
        time.sleep(2)
        suite.check(
            EXECUTOR in command_of(executor) and bool(command_of(writer.pid)),
            f"worker {worker} is decommissioned; its executor {executor} goes on with the file {watch.key}",
        )
    s3.wait_for(lambda: EXECUTOR not in command_of(executor), 120, "a decommissioned executor that runs")
    code, document = document_of(program)
    batches = table.batches()
    suite.check(
        code == 0 and len(batches) == len(set(batches)) == PARTITIONS and table.files() == PARTITIONS,
        f"{DECOMMISSIONED}: the run succeeds, {len(_batches(document))} batches, each committed once; the executor ended",
    )
    suite.check(
        f"s3://{s3.BUCKET}/{watch.key}" in table.paths(),
        "the file of the decommissioned executor is in the table",
    )
    others = {w.nearest(WORKER) for w in suite.store.writers[DECOMMISSIONED]} - {worker}
    suite.check(bool(others), "later files come from the other worker")


def _batches(document: dict[str, object]) -> list[dict[str, object]]:
    tables = document.get("tables", ())
    return [b for t in tables for o in t["operations"] for b in o["batches"]]  # type: ignore[attr-defined]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
