"""`make demo-race`. Exits with 1 when something is not as it should be."""

from __future__ import annotations

import argparse
from pathlib import Path

from iceberg_maint.demo.console import printed
from iceberg_maint.demo.race.main import run
from iceberg_maint.demo.race.strategies import WAYS

_WIDTH = 190
"""Columns of what is not printed to a terminal; the table needs them."""


def main() -> int:
    """Races as the command line says."""
    names = [way.name for way in WAYS]
    parser = argparse.ArgumentParser(prog="python -m iceberg_maint.demo.race")
    parser.add_argument("--data", type=Path, required=True, help="folder of the race, made anew")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long each way races")
    parser.add_argument("--way", choices=names, action="append", help="race only this one; may come again")
    options = parser.parse_args()
    ways = [way for way in WAYS if way.name in (options.way or names)]
    return printed(lambda console: not run(options.data, options.seconds, console, ways).faults, _WIDTH)


if __name__ == "__main__":
    raise SystemExit(main())
