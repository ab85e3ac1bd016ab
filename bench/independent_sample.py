"""CPU of the sample that Iceberg's reader decodes: the first of a cold session, and later ones.

    python -m bench.independent_sample [--scale-factor 0.1] [--files 12] [--sessions 3]

Each session is a process of its own. It rewrites TPC-H lineitem by `columnar` four times and samples each batch.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import native
from bench.used import cpu_seconds

REWRITES = 4


def main() -> int:
    """Prints one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale-factor", type=float, default=0.1)
    parser.add_argument("--files", type=int, default=12)
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument("--measure", type=Path)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(_measure(given.measure)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        native._make(Path(folder), given.scale_factor, given.files)
        command = [sys.executable, "-m", "bench.independent_sample", "--measure", folder]
        lines = [
            subprocess.run(command, cwd=native.PROJECT, capture_output=True, text=True, check=True).stdout
            for _ in range(given.sessions)
        ]
    sessions = [json.loads(line) for line in lines]
    first, later = [s[0] for s in sessions], sorted(seconds for s in sessions for seconds in s[1:])
    print(json.dumps({"first": first, "later": later, "load": round(os.getloadavg()[0], 1)}))
    return 0


def _measure(folder: Path) -> list[float]:
    """The CPU seconds of this process and its JVM for each sample."""
    from iceberg_maint.core.policy.data import RewriteStrategy
    from iceberg_maint.engines.spark.rewrite.columnar import strategy

    spark = native._session(folder)
    run = native._Native(spark, folder, "full")
    run.policy = replace(run.policy, strategy=RewriteStrategy.COLUMNAR, independent_sample=1.0)
    start = int(run.bridge.load_table(native.TABLE).currentSnapshot().snapshotId())
    compare, seconds = strategy.compare_sample, list[float]()

    def measured(*values: Any) -> Any:
        before = cpu_seconds()
        result = compare(*values)
        seconds.append(round(cpu_seconds() - before, 2))
        return result

    strategy.compare_sample = measured
    for _ in range(REWRITES):
        run.rewrite(native.TABLE)
        run.bridge.load_table(native.TABLE).manageSnapshots().setCurrentSnapshot(start).commit()
    spark.stop()
    return seconds


if __name__ == "__main__":
    sys.exit(main())
