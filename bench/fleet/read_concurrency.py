"""Passes over a REST catalog that answers slowly: what `observe` of unchanged tables takes, by the tables asked for at once.

    python -m bench.fleet.read_concurrency [--tables 300] [--latency-ms 20] [--rounds 3]

The server is a process of its own and waits before each answer. Seconds are those of the clock, from the first question to
the last table. CPU seconds are those of the asking process, in the same time. Exits 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.fleet.tables import make_fleet_catalog
from bench.record import publish

PROJECT = Path(__file__).resolve().parents[2]
AT_ONCE = (1, 8)
LEAST_SPEEDUP = 4.0
"""Seconds of one at a time by those of eight."""
MOST_CPU = 1.3
"""CPU seconds of eight at a time by those of one."""


def main() -> int:
    """Prints a line for each number of tables at once, and one line of JSON."""
    if sys.argv[1:2] == ["--worker"]:
        return _WORKERS[sys.argv[2]](*sys.argv[3:])
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=300)
    parser.add_argument("--latency-ms", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    used: dict[int, list[tuple[float, float]]] = {n: [] for n in AT_ONCE}
    with tempfile.TemporaryDirectory(prefix="bench-read-concurrency-") as scratch:
        make_fleet_catalog(Path(scratch), given.tables)
        for _ in range(given.rounds):
            for at_once in AT_ONCE:
                used[at_once].append(_measured(Path(scratch), at_once, given.latency_ms))
    seconds = {n: statistics.median(s for s, _ in pairs) for n, pairs in used.items()}
    cpu = {n: statistics.median(c for _, c in pairs) for n, pairs in used.items()}
    for n in AT_ONCE:
        print(
            f"{given.tables} tables, {given.latency_ms:g} ms, {n} at once: {seconds[n]:.2f} s, {cpu[n]:.2f} CPU s"
        )
    one, many = AT_ONCE
    speedup, more_cpu = seconds[one] / seconds[many], cpu[many] / cpu[one]
    missed = [
        *(["speedup"] if speedup < LEAST_SPEEDUP else []),
        *(["CPU"] if more_cpu > MOST_CPU else []),
    ]
    publish(
        "read_concurrency",
        {"seconds": seconds, "cpu": cpu, "speedup": speedup, "cpu_ratio": more_cpu, "missed": missed},
    )
    return int(bool(missed))


def _measured(home: Path, at_once: int, latency_ms: float) -> tuple[float, float]:
    """Seconds and CPU seconds of a cycle in which nothing has changed."""
    worker = [sys.executable, "-m", "bench.fleet.read_concurrency", "--worker"]
    server = subprocess.Popen(
        [*worker, "serve", str(home / "catalog.db"), str(latency_ms)],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        config = home / "rest.yaml"
        config.write_text(
            f"catalogs: {{lake: {{type: rest, uri: '{server.stdout.readline().strip()}', read_concurrency: {at_once}}}}}\n"
            f"ledger: sqlite:///{home / 'ledger.db'}\n"
        )
        asked = [*worker, "ask", str(config)]
        printed = subprocess.run(asked, cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    finally:
        server.stdin.close()
        server.wait()
    seconds, cpu = json.loads(printed)
    return seconds, cpu


def _serve(database: str, latency_ms: str) -> int:
    from iceberg_maint_tests.support.servers.rest_server import RestServer, serving

    server = RestServer(Path(database))
    server.latency_seconds = float(latency_ms) / 1000
    with serving(server) as url:
        print(url, flush=True)
        sys.stdin.read()
    return 0


def _ask(config: str) -> int:
    from iceberg_maint.core.health.metrics import Measured
    from iceberg_maint.loop.fleet.read_fleet import observe_tables
    from iceberg_maint.wiring.adapters import load

    context = load(Path(config))
    tables = context.catalogs.tables()
    for _ in range(2):  # the first cycle measures what no cycle has measured
        start, cpu = time.monotonic(), time.process_time()
        answers = list(observe_tables(tables, context))
        seconds, cpu = time.monotonic() - start, time.process_time() - cpu
    assert all(isinstance(found, Measured) for _, found in answers)
    print(json.dumps([seconds, cpu]))
    return 0


_WORKERS: dict[str, Callable[..., int]] = {"serve": _serve, "ask": _ask}


if __name__ == "__main__":
    sys.exit(main())
