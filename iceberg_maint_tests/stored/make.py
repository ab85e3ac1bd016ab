"""Makes an archive of what the product stores, by the product of this commit.

    python -m iceberg_maint_tests.stored.make TARGET

TARGET is the archive, `NAME.tar.gz`; beside it is written `NAME.json`: what must be true of it under later code.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from iceberg_maint_tests.stored.place import (
    ARCHIVES,
    CONFIG,
    DAYS,
    HALF_DONE,
    PLACE,
    child,
    fingerprints,
    ledger_url,
    locked_place,
    pack,
    policy_of,
    program,
    stored_of,
)
from iceberg_maint_tests.stored.tables import make_tables, plant_orphans, unreadable
from iceberg_maint_tests.support import jvm

PROJECT = Path(__file__).resolve().parents[2]
LARGEST_BYTES = 1_500_000
READER, NOTE = "billing", "until the audit is over"
_BATCHES = """
select b.batch_id, b.status, b.body, (select count(*) from icm_attempt a where a.batch_id = b.batch_id)
from icm_batch b join icm_lease l using (table_uuid) where l.table_name = ? and b.run_id = ? order by b.ordinal
"""
_INTENTS = """
select a.batch_id, i.files, (select count(*) from icm_try t where t.attempt_id = i.attempt_id)
from icm_intent i join icm_attempt a using (attempt_id) where a.run_id = ? order by a.ordinal
"""


def main(target: Path) -> None:
    """Makes the lake in the fixed folder, lets the product work on it, and packs it."""
    commit = _commit()
    with locked_place():
        shutil.copy(ARCHIVES / CONFIG, PLACE / CONFIG)
        (PLACE / "wh").mkdir()
        ended = child("iceberg_maint_tests.stored.make", "--tables")
        assert ended.returncode == 0, ended.stderr[-4000:]
        rows = fingerprints()
        orphans = _work()
        documents = _documents()
        half_done = {table: _killed(table, point) for table, point in HALF_DONE.items()}
        assert fingerprints() == rows, "the product changed rows"
        pack(target)
    assert target.stat().st_size < LARGEST_BYTES, target.stat().st_size
    expected = {
        "commit": commit,
        "rows": rows,
        "half_done": half_done,
        "orphans": orphans,
        "documents": documents,
    }
    text = json.dumps(expected, indent=1, sort_keys=True) + "\n"
    target.with_name(target.name.replace(".tar.gz", ".json")).write_text(text, "utf-8")
    print(f"{target}: {target.stat().st_size:,} bytes, made by {commit}")


def _commit() -> str:
    """The last commit that changed the product, whose sources must be as they are there."""
    changed = _git("status", "--porcelain", "--", "iceberg_maint")
    assert not changed, f"commit these first, an archive names the commit that made it:\n{changed}"
    return _git("log", "-1", "--format=%H", "--", "iceberg_maint")


def _git(*arguments: str) -> str:
    ended = subprocess.run(["git", *arguments], cwd=PROJECT, capture_output=True, text=True, check=True)
    return ended.stdout.strip()


def _make_tables() -> None:
    from iceberg_maint.wiring import load

    spark = load(PLACE / CONFIG).spark.session()
    make_tables(spark)
    spark.stop()


def _work() -> dict[str, list[str]]:
    """Everything but the runs that are killed; paths of orphans: restored ones, and those in the trash."""
    _run(0, "run", "db.logs", "db.upserts")
    expire = {"max_snapshot_age_seconds": "0", "min_snapshots_to_keep": "1"}
    settings = [
        text for key, value in expire.items() for text in ("--set", f"expire_snapshots.{key}={value}")
    ]
    expired = _run(0, "run", "db.logs", "--operation", "expire_snapshots", *settings)
    [operation] = expired["tables"][0]["operations"]
    assert operation["outcome"] == "IMPROVED", operation
    restored = plant_orphans("logs", DAYS[0], "orphan-back.parquet")
    _run(0, "orphans", "trash", "db.logs")
    _run(0, "orphans", "restore", "db.logs")
    held = plant_orphans("logs", DAYS[1], "orphan-1.parquet", "orphan-2.parquet", "orphan-3.parquet")
    _run(0, "orphans", "trash", "db.logs")
    with unreadable("broken", DAYS[0]), unreadable("broken", DAYS[1]):
        _run(1, "run", "db.broken", "--partition", f"day={DAYS[0]}")
        _run(1, "run", "db.broken", "--partition", f"day={DAYS[1]}", "--set", "retry.quarantine_after=1")
    _run(0, "readers", "set", "db.logs", READER)
    _run(0, "pause", "db.paused", "--note", NOTE)
    _run(0, "observe")
    return {"restored": restored, "held": held}


def _documents() -> dict[str, Any]:
    """What the program says of what is stored."""
    why = {table: _run(0, "why", f"db.{table}") for table in ("broken", "events", "paused")}
    report = _run(0, "report")["tables"]
    return {
        "history": _run(0, "history", "--limit", "1000"),
        "readers": _run(0, "readers", "list", "db.logs"),
        "trash": _run(0, "orphans", "list", "db.logs"),
        "report": [row for row in report if row["table"].removeprefix("lake.db.") not in HALF_DONE],
        "policy": {table: policy_of(why[table]) for table in ("events", "paused")},
        "why": {table: stored_of(why[table]) for table in ("broken", "paused")},
    }


def _killed(table: str, point: str) -> dict[str, Any]:
    """Runs until the point of the second batch; what the dead run left behind."""
    run_id = f"killed-{table}"
    arguments = [str(PLACE / CONFIG), f"db.{table}", point, run_id]
    ended = child("iceberg_maint_tests.support.e2e.killed_run", *arguments)
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-4000:]
    # Read only: what the dead run left in the write-ahead log stays there.
    with closing(sqlite3.connect(f"file:{PLACE}/ledger.db?mode=ro", uri=True)) as ledger:
        batches = ledger.execute(_BATCHES, [f"lake.db.{table}", run_id]).fetchall()
        intents = ledger.execute(_INTENTS, [run_id]).fetchall()
    assert [(status, attempts) for _, status, _, attempts in batches] == [
        ("DONE", 1),
        ("STARTED", 1),
        ("PLANNED", 0),
    ], batches
    (done_id, _, _), (begun_id, files, tries) = intents
    assert (done_id, begun_id) == (batches[0][0], batches[1][0])
    assert tries == (1 if point == "before_swap" else 0)
    paths = [file["path"] for file in json.loads(files)]
    assert all(Path(path.removeprefix("file:")).exists() for path in paths), paths
    return {
        "run_id": run_id,
        "resumed": True,
        "done": done_id,
        "open": [batch_id for batch_id, *_ in batches[1:]],
        "partitions": {batch_id: _partitions(body) for batch_id, _, body, _ in batches},
        "written": paths,
    }


def _partitions(body: str) -> list[str]:
    return sorted(group["partition"] for group in json.loads(body)["groups"])


def _run(exit_code: int, *arguments: str) -> Any:
    ended = program(*arguments, "--json")
    assert ended.returncode == exit_code, (arguments, ended.returncode, ended.stderr[-4000:], ended.stdout)
    return json.loads(ended.stdout)


def _environment() -> Mapping[str, str]:
    # Errors of Spark name the address of the machine; in an archive that is this one.
    local = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}
    return {**jvm.environment(), **local, "STORED_LEDGER": ledger_url()}


if __name__ == "__main__":
    os.environ.update(_environment())
    if sys.argv[1] == "--tables":
        _make_tables()
    else:
        main(Path(sys.argv[1]))
