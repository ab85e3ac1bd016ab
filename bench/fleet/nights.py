"""Many small sick tables within the budget of a night: a night ends at the budget, and the next one goes on where it
stopped.

    python -m bench.fleet.nights [--tables 1000] [--share 0.6]

A night is one `run` over all tables, in a process of its own, with this share of the backlog as `fleet_budget.max_bytes`
per day. Before the next night all times of the budget in the ledger are moved back by a day. CPU seconds are those of
the process with its JVM and Spark's Python workers. Exits 1 if a night exceeds the budget, or leaves as much of it as a
table needs while a table waits, or if a partition is not rewritten exactly once in all nights.
"""

from __future__ import annotations

import argparse
import io
import json
import sqlite3
import sys
import time
from collections import Counter
from contextlib import closing, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.fleet.small_tables import PARTITIONS, lake
from bench.worker import run_worker
from iceberg_maint.engines.spark.session.process_tree import used

MODULE = "bench.fleet.nights"
DAY_MS = 86_400_000
MOST_NIGHTS = 5
_TIMES = (
    ("icm_outcome", "recorded_ms"),
    ("icm_attempt", "started_ms"),
    ("icm_fleet_wait", "since_ms"),
    ("icm_fleet_wait", "until_ms"),
    ("icm_fleet_wait", "decided_ms"),
)
"""The times that the budget of the fleet reads."""


@dataclass(frozen=True, slots=True)
class Night:
    """One run: how often it rewrote each partition, the bytes that it read, the tables that wait, and what it used."""

    rewritten: Counter[tuple[str, str]]
    input_bytes: int
    waiting: int
    cpu_seconds: float
    wall_seconds: float


def main() -> int:
    """Prints a line per night and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--share", type=float, default=0.6)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        print(json.dumps(_run_command(given.worker)))
        return 0
    home = lake(given.tables)
    run_worker(MODULE, "observe", home)
    backlog = run_worker(MODULE, "tables", home)["document"]["summary"]["backlog_bytes"]
    budget = int(backlog * given.share)
    with (home / "iceberg_maint.yaml").open("a", encoding="utf-8") as text:
        text.write(f"fleet_budget: {{period: day, max_bytes: {budget}}}\n")
    nights: list[Night] = []
    rewritten: Counter[tuple[str, str]] = Counter()
    wrong = []
    while len(rewritten) < given.tables * PARTITIONS and len(nights) < MOST_NIGHTS:
        night = _night(home)
        nights.append(night)
        rewritten += night.rewritten
        print(
            f"night {len(nights)}: {len(night.rewritten)} partitions rewritten, {night.input_bytes:,} of {budget:,} "
            f"bytes, {night.waiting} tables wait; {night.cpu_seconds:.0f} CPU s, {night.wall_seconds:.0f} s",
            flush=True,
        )
        rest = budget - night.input_bytes
        if rest < 0 or (night.waiting and rest >= backlog / given.tables):
            wrong.append(f"night {len(nights)} leaves {rest} bytes of the budget")
        _to_the_next_day(home)
    if len(rewritten) != given.tables * PARTITIONS or max(rewritten.values()) != 1:
        wrong.append(f"{len(rewritten)} partitions, rewritten {sorted(set(rewritten.values()))} times")
    figures = [
        {
            "partitions": len(n.rewritten),
            "input_bytes": n.input_bytes,
            "waiting": n.waiting,
            "cpu_seconds": round(n.cpu_seconds, 1),
            "wall_seconds": round(n.wall_seconds),
        }
        for n in nights
    ]
    print(json.dumps({"tables": given.tables, "budget_bytes": budget, "nights": figures, "wrong": wrong}))
    return int(bool(wrong))


def _night(home: Path) -> Night:
    began = time.monotonic()
    result = run_worker(MODULE, "run", home)
    rewritten: Counter[tuple[str, str]] = Counter()
    input_bytes = waiting = 0
    for table in result["document"]["tables"]:
        data = [o for o in table["operations"] if o["operation"] == "rewrite_data_files"]
        batches = [b for o in data for b in o["batches"] if b["snapshot_after"] is not None]
        rewritten.update((table["table"], partition) for b in batches for partition in b["partitions"])
        input_bytes += sum(b["input_bytes"] for b in batches)
        waiting += any(p["reason"] == "fleet_budget" for o in data for p in o["partitions"])
    return Night(rewritten, input_bytes, waiting, result["cpu_seconds"], time.monotonic() - began)


def _run_command(command: str) -> dict[str, Any]:
    """Runs a command of the program in this process. Returns its document and the CPU seconds of all processes."""
    from iceberg_maint.cli import iceberg_maint as program

    out = io.StringIO()
    with redirect_stdout(out):
        program.main([command, "--json"], standalone_mode=False)
    return {"document": json.loads(out.getvalue()), "cpu_seconds": sum(used())}


def _to_the_next_day(home: Path) -> None:
    with closing(sqlite3.connect(home / "ledger.db")) as ledger, ledger:
        for table, column in _TIMES:
            ledger.execute(f"UPDATE {table} SET {column} = {column} - {DAY_MS}")


if __name__ == "__main__":
    sys.exit(main())
