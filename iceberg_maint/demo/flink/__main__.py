"""`make demo-flink`. Exits with 1 when something is not as it should be."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from iceberg_maint.demo.flink.main import run
from iceberg_maint.errors import EXIT_DONE, EXIT_FAILED, IcebergMaintError

_WIDTH = 140
"""Columns of what is not printed to a terminal; the tables need them."""


def main() -> int:
    """Runs the demo as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m iceberg_maint.demo.flink")
    parser.add_argument("--data", type=Path, required=True, help="folder of the lake, made anew")
    parser.add_argument("--flink", type=Path, required=True, help="folder that holds Flink")
    options = parser.parse_args()
    try:
        console = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False)
        report = run(options.data, options.flink, console)
    except IcebergMaintError as refusal:
        sys.stderr.write(f"{refusal}\n")
        return refusal.exit_code
    return EXIT_DONE if report.good else EXIT_FAILED


if __name__ == "__main__":
    raise SystemExit(main())
