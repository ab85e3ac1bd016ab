"""Prints the transcript in docs/transcripts/killed-run.txt: two runs killed, one that finishes their work.

python -m iceberg_maint_tests.support.e2e.transcript > docs/transcripts/killed-run.txt
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from iceberg_maint_tests.support.e2e.lake import make_lake, make_table, rows_by_duckdb

WIDTH = 150


def _show(folder: Path, shown: str, command: list[str]) -> None:
    """Runs the command and prints what a person would have seen, without this machine's paths."""
    print(f"$ {shown}", flush=True)
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": str(WIDTH)},
    )
    text = (ended.stdout + ended.stderr).replace(str(folder), "LAKE")
    print("\n".join(line.rstrip() for line in text.splitlines()))
    print(f"[exit {ended.returncode}]\n", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = make_lake(folder)
        make_table(folder, "db.events", 6)
        before = rows_by_duckdb(folder, "db.events")
        program = [sys.executable, "-m", "iceberg_maint"]
        killed = [
            sys.executable,
            "-m",
            "iceberg_maint_tests.support.e2e.killed_run",
            str(config),
            "db.events",
        ]
        with_config = ["--config", str(config)]
        print("A table with three sick partitions; every batch takes one of them.\n")
        _show(folder, "iceberg-maint plan db.events", [*program, "plan", "db.events", *with_config])
        print("SIGKILL between the first batch and the second (-9 is the signal):\n")
        _show(folder, "iceberg-maint run db.events     # killed", [*killed, "between_batches", "run-1"])
        _show(folder, "iceberg-maint tables", [*program, "tables", *with_config])
        print("SIGKILL inside a batch, after its files are written and before its commit:\n")
        _show(folder, "iceberg-maint run db.events     # killed", [*killed, "files_written", "run-2"])
        print("The next run waits for the dead run's lease, settles what it left, and goes on:\n")
        _show(folder, "iceberg-maint run db.events", [*program, "run", "db.events", *with_config])
        _show(folder, "iceberg-maint attest db.events", [*program, "attest", "db.events", *with_config])
        same = rows_by_duckdb(folder, "db.events") == before
        print(
            f"DuckDB reads {sum(before.values())} rows before and after: {'equal' if same else 'DIFFERENT'}"
        )


if __name__ == "__main__":
    main()
