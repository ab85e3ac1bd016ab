"""`make demo-race`. Exits with 1 when something is not as it should be."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from iceberg_maint.demo.race.main import run
from iceberg_maint.errors import EXIT_DONE, EXIT_FAILED, IcebergMaintError

_WIDTH = 190
"""Columns of what is not printed to a terminal; the table needs them."""


def main() -> int:
    """Races as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m iceberg_maint.demo.race")
    parser.add_argument("--data", type=Path, required=True, help="folder of the race, made anew")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long each way races")
    options = parser.parse_args()
    try:
        console = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False)
        report = run(options.data, options.seconds, console)
    except IcebergMaintError as refusal:
        sys.stderr.write(f"{refusal}\n")
        return refusal.exit_code
    return EXIT_FAILED if report.faults else EXIT_DONE


if __name__ == "__main__":
    raise SystemExit(main())
