"""Looking for orphans among 10,000, 100,000 and 1,000,000 objects of an S3 that makes them up: memory and requests.

    python -m bench.removal.orphan_scan [--rounds N] [--objects N]...

Each scan is the program's own (`OrphanRemoval.look` on the store that `open_store` returns), in a fresh process. The
endpoint (`bench.removal.made_up_s3`) is another process and answers pages of 1,000 keys. One object of a hundred is an orphan.
The paths of the live files come from here, so that no metadata is read. CPU seconds and memory are those of the
scanning process. Exits 1 if an orphan is missed, if the listing takes more than one request per 1,000 objects, if the
other requests are more for more objects, or if memory grows.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

from bench.record import publish
from bench.removal.made_up_s3 import PAGE, name
from bench.removal.scanned_store import MADE_UP, Reached, made_up_store, scanned, table_state
from bench.worker import PROJECT

SIZES = (10_000, 100_000, 1_000_000)
ORPHANS_PER_OBJECT = 100
MOST_GROWTH_MB = 64.0
"""The highest resident memory of the largest scan, above that of the smallest one."""
MOST_OTHER_REQUESTS = 16


def main() -> int:
    """Prints a table and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--objects", type=int, action="append")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        print(json.dumps(scan(given.worker)))
        return 0
    sizes = sorted(given.objects or SIZES)
    runs: dict[int, list[dict[str, Any]]] = {size: [] for size in sizes}
    for _ in range(given.rounds):
        for size in sizes:
            command = [sys.executable, "-m", "bench.removal.orphan_scan", "--worker", str(size)]
            ended = subprocess.run(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True, check=True)
            runs[size].append(json.loads(ended.stdout.splitlines()[-1]))
    return report({size: _medians(found) for size, found in runs.items()})


def _medians(found: list[dict[str, Any]]) -> dict[str, float]:
    return {key: statistics.median(run[key] for run in found) for key in found[0]}


def report(figures: dict[int, dict[str, float]]) -> int:
    """Prints the figures. Returns 1 if one misses its target."""
    from rich.console import Console
    from rich.table import Table

    smallest, largest = min(figures), max(figures)
    table = Table(
        "objects", "orphans", "LIST of the table", "other requests", "CPU s", "s", "peak MB", "missed"
    )
    missed = []
    for size, found in figures.items():
        wrong = []
        if found["orphans"] != size // ORPHANS_PER_OBJECT:
            wrong.append("orphans")
        if found["lists"] != -(-size // PAGE):
            wrong.append("LIST requests")
        if found["others"] > MOST_OTHER_REQUESTS or found["others"] != figures[smallest]["others"]:
            wrong.append("other requests")
        if size == largest and found["peak_mb"] - figures[smallest]["peak_mb"] > MOST_GROWTH_MB:
            wrong.append("memory")
        missed += wrong
        numbers = (f"{found[k]:,.0f}" for k in ("orphans", "lists", "others"))
        used = (f"{found[k]:.1f}" for k in ("cpu_seconds", "seconds", "peak_mb"))
        table.add_row(f"{size:,}", *numbers, *used, ", ".join(wrong) or "nothing")
    growth_mb = figures[largest]["peak_mb"] - figures[smallest]["peak_mb"]
    Console().print(table, f"memory grows by {growth_mb:.0f} MB, at most {MOST_GROWTH_MB:g} MB are allowed")
    publish(
        "orphan_scan",
        {"figures": figures, "growth_mb": round(growth_mb, 1), "limit_mb": MOST_GROWTH_MB},
    )
    return int(bool(missed))


def scan(objects: int) -> dict[str, Any]:
    """One scan of so many objects in this process."""
    live = range(objects - objects // ORPHANS_PER_OBJECT)
    with made_up_store(objects) as (store, counts):
        started = time.time()
        found = scanned(
            table_state(MADE_UP),
            others=lambda _table: (),
            store=lambda _state: store,
            reachability=lambda _state: Reached(MADE_UP, lambda: (f"{MADE_UP}/{name(n)}" for n in live)),
        )
        requests = counts()
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "orphans": found["orphans"],
            "lists": requests["LIST TABLE"],
            "others": sum(requests.values()) - requests["LIST TABLE"],
            "cpu_seconds": used.ru_utime + used.ru_stime,
            "seconds": time.time() - started,
            "peak_mb": used.ru_maxrss / 1024,
        }


if __name__ == "__main__":
    sys.exit(main())
