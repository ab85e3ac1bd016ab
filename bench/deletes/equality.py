"""Cleaning equality deletes against Iceberg's stock `rewrite_data_files`: time, memory, reads.

    python -m bench.deletes.equality [--part NAME]... [--quick] [--rounds N] [--fresh] [--report]

Parts: `speed` at a comfortable heap, `smallest` at the smallest heap at which stock finishes, `memory` on a
table that makes stock need gigabytes, `beyond` with deletes far beyond memory, `reads` before and after.
Every action runs in a fresh process on an equal copy of the table, `local[2]`, in turn; rows are compared
with what the making of the table says must be left. The smallest heap is found by bisection on a grid of 12 %;
an action that takes three times its time at the largest heap tried counts as not finishing. Results are kept, so
that parts can run apart; stock's smallest heaps are reused unless `--fresh`. Exits 1 when a target is missed
that is no stretch, or rows differ.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from bench.deletes.tables import DATA, SHAPES, Expected, forget_runs, table
from bench.stock_session import PROJECT

COMFORTABLE_MB = 4096
SMALLEST_MB = 480
"""Spark starts with no less."""
STEP = 1.12
ROUNDS = 3
Run = dict[str, Any]
"""What one process measured; `ok`, or why not."""


def main() -> int:
    """Runs what is asked for, then prints the table of all that is known."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--table", action="append", choices=SHAPES, help="of `speed`")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--quick", action="store_true", help="a small table, one round, no bisection")
    parser.add_argument("--fresh", action="store_true", help="bisect stock again")
    parser.add_argument("--report", action="store_true", help="only print what is known")
    given = parser.parse_args()
    if given.quick:
        return _quick()
    if not given.report:
        for part in given.part or PARTS:
            found = PARTS[part](given)
            (DATA / f"{part}.json").write_text(json.dumps(found, indent=1))
    from bench.deletes.report import report

    return report(
        {part: json.loads(path.read_text()) for part in PARTS if (path := DATA / f"{part}.json").is_file()}
    )


# parts


def speed(given: argparse.Namespace) -> Any:
    """Stock against the planner's choice, and each route, at a comfortable heap."""
    return {
        name: _compare(
            name, COMFORTABLE_MB, ("stock", "stock-cached", "auto", "convert", "rewrite"), given.rounds
        )
        for name in given.table or ("upsert", "upsert_v3", "partitioned", "partitioned_200")
    }


def smallest(given: argparse.Namespace) -> Any:
    """The same at the smallest heap at which stock finishes."""
    heap = stock_heap("upsert", 1024, 2816, fresh=given.fresh)
    return {"upsert": _compare("upsert", heap, ("stock", "auto", "convert", "rewrite"), given.rounds)}


def memory(given: argparse.Namespace) -> Any:
    """The smallest heaps of stock and of ours on a table with more deletes than stock can hold."""
    stock = stock_heap("heavy", 5120, 9216, fresh=given.fresh)
    runs, heaps = {"stock": [run("heavy", "stock", stock)]}, {"stock_heap_mb": stock}
    for action in ("convert", "rewrite"):
        least = run("heavy", action, SMALLEST_MB)
        heap = SMALLEST_MB if least["ok"] else smallest_heap("heavy", action, SMALLEST_MB, stock // 8)
        heaps[f"{action}_heap_mb"] = heap or 0
        if heap:
            runs[action] = [least if least["ok"] else run("heavy", action, heap)]
    return heaps | {"runs": runs}


def beyond(_given: argparse.Namespace) -> Any:
    """Both routes in 1 GB on 52 million delete keys."""
    return {"beyond": {action: [run("beyond", action, 1024)] for action in ("convert", "rewrite")}}


def reads(given: argparse.Namespace) -> Any:
    """Reading the table before, after a conversion and after a rewrite, in fresh processes of equal heap."""
    found: dict[str, list[Run]] = {"before": [], "convert": [], "rewrite": [], "stock": []}
    for _ in range(given.rounds):
        for after, runs in found.items():
            with Copy("upsert") as copy:
                if after != "before":
                    assert copy.run(after, COMFORTABLE_MB)["ok"]
                runs.append(copy.run("read", COMFORTABLE_MB))
                _say("upsert", f"read {after}", COMFORTABLE_MB, runs[-1])
    return found


PARTS: dict[str, Callable[[argparse.Namespace], Any]] = {
    "speed": speed, "smallest": smallest, "memory": memory, "beyond": beyond, "reads": reads,
}  # fmt: skip


def _quick() -> int:
    """Every action once on a small table: whether all of it works, no figure."""
    found = {action: run("quick", action, 1024) for action in ("stock", "auto", "convert", "rewrite")}
    return 0 if all(r["ok"] for r in found.values()) else 1


def _compare(name: str, heap_mb: int, actions: tuple[str, ...], rounds: int) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {action: [] for action in actions}
    for turn in range(rounds):
        for action in actions if turn % 2 == 0 else actions[::-1]:
            found[action].append(run(name, action, heap_mb))
    return found


# heaps


def stock_heap(name: str, least_mb: int, enough_mb: int, *, fresh: bool) -> int:
    """Stock's smallest heap on a table, in MB; found once."""
    kept = DATA / f"stock-heap-{name}.json"
    shape = asdict(SHAPES[name])
    known = json.loads(kept.read_text()) if kept.is_file() and not fresh else {}
    if known.get("shape") != shape:
        heap = smallest_heap(name, "stock", least_mb, enough_mb)
        assert heap, f"stock does not finish on {name} with {enough_mb} MB"
        known = {"shape": shape, "heap_mb": heap}
        kept.write_text(json.dumps(known))
    return int(known["heap_mb"])


def smallest_heap(name: str, action: str, least_mb: int, enough_mb: int) -> int | None:
    """The smallest heap in MB at which the action finishes, on a grid of 12 % from `least_mb`;
    None when `enough_mb` is not enough."""
    largest = run(name, action, enough_mb)
    if not largest["ok"]:
        return None
    limit_seconds = 3 * largest["wall_seconds"] + 30
    heaps = [least_mb]
    while heaps[-1] < enough_mb:
        heaps.append(min(enough_mb, int(heaps[-1] * STEP)))
    # At heaps[good] it finishes, below heaps[bad + 1] it does not.
    bad, good = -1, len(heaps) - 1
    while good - bad > 1:
        middle = (bad + good) // 2
        if run(name, action, heaps[middle], limit_seconds)["ok"]:
            good = middle
        else:
            bad = middle
    return heaps[good]


# one process


class Copy:
    """A copy of a table's catalog: what is committed to it leaves the table as it was."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.source, self.expected = table(SHAPES[name])

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="run-", dir=self.source))
        with (
            sqlite3.connect(self.source / "catalog.db") as made,
            sqlite3.connect(self.folder / "catalog.db") as own,
        ):
            made.backup(own)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder)
        forget_runs(self.source)

    def run(self, action: str, heap_mb: int, limit_seconds: float = 3600) -> Run:
        """One action in its own process; `ok` when it finished with the right rows."""
        command = [
            sys.executable,
            "-m",
            "bench.deletes.run",
            str(self.folder),
            action,
            f"{heap_mb}m",
        ]
        start = time.monotonic()
        with (self.folder / "err").open("w") as err:
            child = subprocess.Popen(
                command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=err, text=True, start_new_session=True
            )
            try:
                out, _ = child.communicate(timeout=limit_seconds)
            except subprocess.TimeoutExpired:
                out = ""
            # A JVM that ran out of memory may outlive its Python.
            if child.poll() is None or child.returncode != 0:
                _end(child)
        told = (self.folder / "err").read_text()
        common = {"table": self.name, "action": action, "heap_mb": heap_mb}
        if child.returncode != 0 or not out:
            why = "OutOfMemoryError" if "OutOfMemoryError" in told else told.strip()[-600:] or "too slow"
            return {**common, "ok": False, "why": why, "wall_seconds": round(time.monotonic() - start, 1)}
        found = json.loads(out.splitlines()[-1])
        right = found["read_rows"] == _wanted(self.expected)
        return {**common, "ok": right, **({} if right else {"why": "rows differ"}), **found}


def run(name: str, action: str, heap_mb: int, limit_seconds: float = 3600) -> Run:
    """One action on a fresh copy."""
    with Copy(name) as copy:
        found = copy.run(action, heap_mb, limit_seconds)
    _say(name, action, heap_mb, found)
    with (DATA / "runs.jsonl").open("a") as log:
        log.write(json.dumps({"at": round(time.time()), **found}) + "\n")
    return found


def _end(child: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _wanted(expected: Expected) -> list[int]:
    return [expected.rows, expected.id_sum, expected.amount_sum, expected.open_rows, expected.open_amount]


def _say(name: str, action: str, heap_mb: int, found: Run) -> None:
    keys = ("why", "wall_seconds", "cpu_seconds", "peak_bytes", "count_seconds", "filter_seconds", "memory")
    shown = {key: found[key] for key in keys if key in found}
    print(
        f"{name} {action} in {heap_mb} MB: {'ok' if found['ok'] else 'FAILED'} {shown}",
        file=sys.stderr,
        flush=True,
    )


if __name__ == "__main__":
    raise SystemExit(main())
