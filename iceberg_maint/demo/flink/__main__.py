"""`make demo-flink`. Exits with 1 when something is not as it should be."""

from __future__ import annotations

import argparse
from pathlib import Path

from iceberg_maint.demo.console import printed
from iceberg_maint.demo.flink.main import run

_WIDTH = 140
"""Columns of what is not printed to a terminal; the tables need them."""


def main() -> int:
    """Runs the demo as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m iceberg_maint.demo.flink")
    parser.add_argument("--data", type=Path, required=True, help="folder of the lake, made anew")
    parser.add_argument("--flink", type=Path, required=True, help="folder that holds Flink")
    options = parser.parse_args()
    return printed(lambda console: run(options.data, options.flink, console).good, _WIDTH)


if __name__ == "__main__":
    raise SystemExit(main())
