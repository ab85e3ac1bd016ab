"""`make demo DEMO=flink`. Exits with 1 if there is a fault."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.flink.main import run
from iceberg_maint.demo.report import printed

_WIDTH = 140
"""Columns of output that goes to no terminal."""


def main() -> int:
    """Runs the demo with the arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.flink")
    parser.add_argument(
        "--data", type=Path, required=True, help="folder of the lake, which is deleted and created"
    )
    parser.add_argument("--flink", type=Path, required=True, help="folder of Flink")
    options = parser.parse_args()
    return printed(lambda console: run(options.data, options.flink, console).good, _WIDTH)


if __name__ == "__main__":
    raise SystemExit(main())
