"""`make demo DEMO=race`. Exits with 1 if there is a fault."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.race.main import run
from bench.race.strategies import WAYS
from iceberg_maint.demo.report import printed

_WIDTH = 190
"""Columns of output that goes to no terminal."""


def main() -> int:
    """Runs the race with the arguments of the command line."""
    names = [way.name for way in WAYS]
    parser = argparse.ArgumentParser(prog="python -m bench.race")
    parser.add_argument(
        "--data", type=Path, required=True, help="folder of the race, which is deleted and created"
    )
    parser.add_argument("--seconds", type=float, default=120.0, help="seconds per strategy")
    parser.add_argument("--way", choices=names, action="append", help="only this strategy; may be repeated")
    options = parser.parse_args()
    ways = [way for way in WAYS if way.name in (options.way or names)]
    return printed(lambda console: not run(options.data, options.seconds, console, ways).faults, _WIDTH)


if __name__ == "__main__":
    raise SystemExit(main())
