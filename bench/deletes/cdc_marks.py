"""What position deletes cost readers, by the share of the rows that they delete.

    python -m bench.deletes.cdc_marks [--versions 2 3] [--rows N] [--permille N…] [--rounds N]

A table of `bench.deletes.cdc` before its upserts. In every round it is read whole, then with one position delete file or deletion
vector for each data file that deletes so many thousandths of its rows. Prints median CPU seconds of each query, and those of
the whole table divided by them. Measures, and has no target.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path

from bench.deletes.cdc import ROWS_OF_A_BASE_FILE, _Child
from bench.deletes.tables import Shape


def main() -> None:
    """Prints one line for each format version, share and query."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--versions", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--permille", type=int, nargs="+", default=[1, 10, 50, 100, 200, 300])
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    for version in given.versions:
        files = max(1, given.rows // (4 * ROWS_OF_A_BASE_FILE))
        shape = Shape("cdc_marks", given.rows, files, 1, 4, 4, 0.9, regions=4, version=version)
        measured: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        with tempfile.TemporaryDirectory(prefix="bench-cdc-marks-") as folder:
            child = _Child(Path(folder) / "ours", "ours", shape)
            child.step("read 5")
            for _ in range(given.rounds):
                for permille in (0, *given.permille):
                    child.step(f"mark {permille}")
                    for query, seconds in child.step("read 5")["cpu_seconds"].items():
                        measured[query][permille].append(seconds)
            child.end()
        for query, by_share in measured.items():
            whole = statistics.median(by_share[0])
            for permille in given.permille:
                seconds = statistics.median(by_share[permille])
                ratio = round(whole / max(1e-9, seconds), 2)
                line = {"version": version, "query": query, "permille": permille, "cpu_seconds": seconds}
                print(json.dumps({**line, "whole_over_marked": ratio}), flush=True)


if __name__ == "__main__":
    main()
