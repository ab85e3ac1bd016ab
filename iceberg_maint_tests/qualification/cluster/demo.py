"""The steps of the demo on a cluster, and what each must show."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from iceberg_maint.core.model.reasons import Verdict
from iceberg_maint.core.removal.orphan_rules import TRASH
from iceberg_maint.demo.store import ORPHAN_AGE_SECONDS, ORPHANS
from iceberg_maint.demo.tables import CONTROL
from iceberg_maint_tests.qualification.cluster import store as s3
from iceberg_maint_tests.qualification.cluster.configuration import write_configuration
from iceberg_maint_tests.qualification.cluster.lake import COLUMNAR, HOUSEKEPT, LAKE, NATIVE
from iceberg_maint_tests.qualification.cluster.processes import Process
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


def run(folder: Path, cache: Path) -> int:
    """Runs the demo in a folder. Returns 1 if a check failed."""
    with servers(folder, cache, write_configuration) as demo:
        _steps(demo)
        return demo.end()


def _steps(demo: Suite) -> None:
    _step(demo, "build", "the demo lake is built by its writers")
    orphans = s3.add_old_copies(table_folder(HOUSEKEPT), ORPHANS, ORPHAN_AGE_SECONDS)
    rows = Rows(demo.folder, [t.name for t in LAKE])
    rows.copy()
    demo.say(f"{orphans} old orphans added, rows of {len(LAKE)} tables copied by DuckDB")
    code, _ = demo.document("doctor")
    demo.check(code == 0, "doctor finds the configuration, the catalog, the store and the cluster in order")
    _rewrite(demo, NATIVE, "native", EXECUTOR, lambda writer: writer.nearest(EXECUTOR))
    _rewrite(demo, COLUMNAR, "columnar", WORKER, lambda writer: writer.nearest(WORKER))
    (healing,) = _step(demo, "healing", "Dagster maintains the lake on the worker that is left")[-1:]
    document = json.loads(healing)
    demo.check(
        document["settled"] and not document["failed_runs"], f"Dagster is done in {document['ticks']} ticks"
    )
    for name, state in document["tables"].items():
        healthy = state["decision"] == Verdict.SKIP.value and not state["housekeeping"]
        demo.check(healthy or name == CONTROL, f"{name} is healthy ({state['data_files']} data files)")
    killed = [k for k in s3.keys(table_folder(HOUSEKEPT)) if s3.COPY in k]
    demo.check(
        len({k.rpartition("/")[2] for k in killed}) == orphans and all(f"/{TRASH}/" in k for k in killed),
        f"{orphans} orphans are in the trash",
    )
    for name, comparison in rows.compare().items():
        demo.check(comparison.equal, f"{name}: {comparison.rows_after} rows, equal before and after")


def _rewrite(
    demo: Suite, table: str, strategy: str, what: str, victim_of: Callable[[Process], int | None]
) -> None:
    """Rewrites a table by the command line, and kills a process of the cluster while a file is written."""
    pointer = committed(table)
    with demo.store.delaying(data_file_of(table)) as watch:
        program = demo.program("run", f"lake.demo.{table}", "--operation", "rewrite_data_files")
        caught = watch.caught.wait(START_SECONDS)
        writer = watch.writer
        victim = victim_of(writer) if writer else None
        if caught and writer and victim:
            uncommitted = committed(table) == pointer
            is_python = PYTHON_WORKER in writer.command
            demo.check(
                is_python == (strategy == "columnar") and writer.nearest(EXECUTOR) is not None,
                f"{strategy}: process {writer.pid} ({'Python worker' if is_python else 'JVM'} of executor "
                f"{writer.nearest(EXECUTOR)}, of worker {writer.nearest(WORKER)}) writes a file of {table}",
            )
            os.kill(victim, signal.SIGKILL)
            demo.check(uncommitted, f"process {victim} ({what}) is killed before the commit")
        else:
            demo.check(False, f"a data file of {table} is written by an executor: {writer}")
    code, document = document_of(program)
    (demo.folder / f"run-{table}.json").write_text(json.dumps(document, indent=2))
    operations = [o for t in document.get("tables", ()) for o in t["operations"]]
    batches = [b for o in operations for b in o["batches"]]
    proved = bool(batches) and all(b["proof"]["equal"] and not b["message"] for b in batches)
    demo.check(
        code == 0 and proved,
        f"{table}: the run succeeds, {len(batches)} batches committed and proved equal by {strategy}",
    )
    others = {w.nearest(EXECUTOR) for w in demo.store.writers[table]} - {None, victim}
    demo.say(f"     data files of {table} come from executors {sorted(filter(None, others))}")


def _step(demo: Suite, module: str, claim: str) -> list[str]:
    """Runs a program of this package. Returns the lines that it wrote."""
    with (demo.folder / f"{module}.log").open("wb") as log:
        command = [
            sys.executable,
            "-m",
            f"iceberg_maint_tests.qualification.cluster.{module}",
            str(demo.folder),
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, check=False)
    demo.check(done.returncode == 0, claim)
    if done.returncode:
        raise SystemExit((demo.folder / f"{module}.log").read_text(errors="replace")[-4000:])
    return done.stdout.splitlines()
