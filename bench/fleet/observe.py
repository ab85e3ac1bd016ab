"""A fleet of small tables: what `observe`, `tables` and `assess` cost cold, unchanged and after some commits; and one
table of many files: `observe` cold and after a commit of ten files, and `plan` of one partition.

    python -m bench.fleet.observe [--tables 10000] [--large-files 1000000] [--rounds 1] [--parts fleet large]

Every figure is of a process of its own, in CPU seconds. `start` rows are the same command on an empty catalog; for the
large table on a changed table of 36 files, so that both load what reads files. `work` is the whole process without start and without what prints the JSON; `and output` is without
the start only. Exits 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.fleet.tables import (
    COMMITS,
    LARGE,
    change,
    commit_ten_files,
    empty_catalog,
    large_copy,
    make_fleet_catalog,
    write_config,
)
from bench.record import publish

PROJECT = Path(__file__).resolve().parents[2]
CHANGED = 100
LARGE_PARTITION = "at_day=2024-10-04/id_bucket=0"
PEAK = "large observe cold, peak MB"


@dataclass(frozen=True, slots=True)
class Used:
    """What one process has used: CPU seconds in all, those of its output, and its highest resident memory in MiB."""

    all: float
    output: float
    peak_mb: float


def main() -> int:
    """Prints a table and one line of JSON."""
    if sys.argv[1:2] == ["--worker"]:
        return _WORKERS[sys.argv[2]](*sys.argv[3:])
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--large-files", type=int, default=1_000_000)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    given = parser.parse_args()
    figures: dict[str, list[float]] = {}
    sizes = {"fleet": given.tables, "large": given.large_files}
    for _ in range(given.rounds):
        for part in given.parts:
            with tempfile.TemporaryDirectory(prefix="bench-fleet-") as scratch:
                for name, value in PARTS[part](Path(scratch), sizes[part]).items():
                    figures.setdefault(name, []).append(value)
    medians = {name: round(statistics.median(values), 3) for name, values in figures.items()}
    return _report(medians, given.tables, given.large_files, given.rounds)


def limits(tables: int) -> dict[str, float]:
    """The targets: CPU seconds at 10,000 tables, in proportion to the tables; those of a table of a million files."""
    scale = tables / 10_000
    return {
        "observe unchanged, finding out": 0.5 * scale,
        "tables unchanged, and output": 3 * scale,
        "observe 100 changed, work": 3,
        "observe cold, and output": 60 * scale,
        "assess, all": 600 * scale,
        "large observe cold, and output": 20,
        PEAK: 600,
        "large observe after ten files, and output": 1,
        "large plan of one partition, and output": 1,
    }


def _fleet(home: Path, tables: int) -> dict[str, float]:
    empty = empty_catalog(home / "empty")
    _command(empty, "observe", "--json")  # makes the ledger
    start = {command: _command(empty, command, "--json").all for command in ("observe", "tables")}
    make_fleet_catalog(home, tables)
    config = write_config(home)
    figures = {f"{c} start": seconds for c, seconds in start.items()}
    figures["assess, all"] = _command(config, "assess", "--json").all

    def note(name: str, command: str) -> None:
        used = _command(config, command, "--json")
        figures[f"{name}, all"] = used.all
        figures[f"{name}, and output"] = used.all - start[command]
        figures[f"{name}, work"] = used.all - start[command] - used.output

    note("observe cold", "observe")
    note("observe unchanged", "observe")
    figures["observe unchanged, finding out"] = _seconds_of_reading(config)
    note("tables unchanged", "tables")
    change(home, min(CHANGED, tables), COMMITS + 1)
    note(f"observe {CHANGED} changed", "observe")
    return figures


def _large(home: Path, files: int) -> dict[str, float]:
    small = home / "small"
    small.mkdir()
    make_fleet_catalog(small, 1)
    small_config = write_config(small)
    _command(small_config, "observe", "--json")  # makes the ledger
    change(small, 1)
    start = {
        "observe": _command(small_config, "observe", "db.t00000", "--json").all,
        "plan": _command(small_config, "plan", "db.t00000", "--json").all,
    }
    figures = {f"large {c} start": seconds for c, seconds in start.items()}
    config = large_copy(home, files)

    def note(name: str, command: Sequence[str]) -> Used:
        used = _command(config, *command, "--json")
        figures[f"large {name}, all"] = used.all
        figures[f"large {name}, and output"] = used.all - start[command[0]]
        figures[f"large {name}, work"] = used.all - start[command[0]] - used.output
        return used

    figures[PEAK] = note("observe cold", ["observe", LARGE]).peak_mb
    commit_ten_files(home, files)
    used = note("observe after ten files", ["observe", LARGE])
    figures["large observe after ten files, peak MB"] = used.peak_mb
    note("plan of one partition", ["plan", LARGE, "--partition", LARGE_PARTITION])
    return figures


PARTS: dict[str, Callable[[Path, int], dict[str, float]]] = {"fleet": _fleet, "large": _large}


def _report(figures: dict[str, float], tables: int, files: int, rounds: int) -> int:
    from rich.console import Console
    from rich.table import Table

    targets = {name: limit for name, limit in limits(tables).items() if name in figures}
    table = Table(f"{tables:,} tables, {files:,} files (median of {rounds})", "CPU s", "limit")
    missed = [name for name, limit in targets.items() if figures[name] > limit]
    for name, value in figures.items():
        mark = " MISSED" if name in missed else ""
        table.add_row(name, f"{value:.3g}{mark}", f"{targets.get(name, ''):g}" if name in targets else "")
    Console().print(table)
    publish("fleet", {**figures, "limits": targets, "missed": missed})
    return int(bool(missed))


def _command(config: Path, *command: str) -> Used:
    """Runs a command of the program in a process, with its output thrown away."""
    environ = {**os.environ, "ICEBERG_MAINT_CONFIG": str(config)}
    read, write = os.pipe()
    with os.fdopen(read, encoding="ascii") as notes:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.fleet.observe", "--worker", "program", str(write), *command],
            cwd=PROJECT,
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[write],
        )
        os.close(write)
        output_seconds = float(notes.read())
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return Used(used.ru_utime + used.ru_stime, output_seconds, used.ru_maxrss / 1024)


def _program(descriptor: str, *arguments: str) -> int:
    """The program itself. Writes the CPU seconds of its output to the descriptor."""
    from iceberg_maint.cli import iceberg_maint
    from iceberg_maint.cli.context import Session

    class Timed(Session):
        def emit(self, document: Any, draw: Any) -> None:
            start = time.process_time()
            super().emit(document, draw)
            os.write(int(descriptor), str(time.process_time() - start).encode())

    return int(iceberg_maint.main(list(arguments), obj=Timed(), standalone_mode=False) or 0)


def _seconds_of_reading(config: Path) -> float:
    command = [sys.executable, "-m", "bench.fleet.observe", "--worker", "read", str(config)]
    return float(subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout)


def _read(config: str) -> int:
    """Prints the CPU seconds in which a process finds out that no table has changed."""
    from iceberg_maint.loop.fleet.read_fleet import FleetReading
    from iceberg_maint.ports.stored import StoredMeasurement
    from iceberg_maint.wiring.adapters import load

    context = load(Path(config))
    tables = context.catalogs.tables()
    context.ledger.registry.now_ms()
    start = time.process_time()
    unchanged = [t for t, found in FleetReading(tables, context) if isinstance(found, StoredMeasurement)]
    used = time.process_time() - start
    assert len(unchanged) == len(tables), (len(unchanged), len(tables))
    print(used)
    return 0


_WORKERS: dict[str, Callable[..., int]] = {"program": _program, "read": _read}


if __name__ == "__main__":
    sys.exit(main())
