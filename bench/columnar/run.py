"""One process of `bench.columnar.rewrites`: rewrites the table of a part by one variant and prints the figures.

python -m bench.columnar.run VARIANT FOLDER [ARCHIVE]
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.columnar import strategies
from bench.used import since, tree_cpu_seconds
from iceberg_maint.engines.spark.session.process_tree import used

WARM_RUNS = 2


def main() -> None:
    """Prints one line of JSON."""
    variant, folder = sys.argv[1:]
    print(json.dumps(_measure(Path(folder), variant)))


def _measure(folder: Path, variant: str) -> dict[str, Any]:
    more = strategies.SPARKS_DEFAULTS if variant in ("stock", "tuned") else None
    spark = strategies.session(folder, more)
    run = _variant(spark, folder, variant)
    table = run.bridge.load_table(strategies.TABLE)
    start = int(table.currentSnapshot().snapshotId())
    summary = table.currentSnapshot().summary()
    result: dict[str, Any] = {
        "input_files": int(summary.get("total-data-files")),
        "input_bytes": int(summary.get("total-files-size")),
        "records": int(summary.get("total-records")),
    }
    data = folder / "wh" / "bench" / "lineitem" / "data"
    inputs = set(data.rglob("*.parquet"))
    runs: list[tuple[float, ...]] = []
    for _ in range(1 + WARM_RUNS):
        before_each, before_cpu, before = used(), tree_cpu_seconds(), time.monotonic()
        result["output_files"] = run.rewrite(strategies.TABLE)
        figures = tree_cpu_seconds() - before_cpu, time.monotonic() - before
        runs.append((*figures, *since(used(), before_each)))
        written = run.bridge.load_table(strategies.TABLE).currentSnapshot().summary()
        assert int(written.get("total-records")) == result["records"]
        assert int(written.get("total-data-files")) == result["output_files"]
        result["output_bytes"] = int(written.get("total-files-size"))
        run.bridge.load_table(strategies.TABLE).manageSnapshots().setCurrentSnapshot(start).commit()
        for path in set(data.rglob("*.parquet")) - inputs:
            path.unlink()
    spark.stop()
    warm = [statistics.median(seconds) for seconds in zip(*runs[1:], strict=True)]
    names = ("cpu_seconds", "wall_seconds", "driver_cpu_seconds", "jvm_cpu_seconds", "worker_cpu_seconds")
    for name, seconds in (("cold", runs[0]), ("warm", warm)):
        result[name] = {n: round(s, 2) for n, s in zip(names, seconds, strict=True)}
    return result


def _variant(spark: Any, folder: Path, variant: str) -> Any:
    from iceberg_maint.core.policy.data import RewriteStrategy

    if variant == "stock":
        return strategies.Stock(spark)
    if variant == "tuned":
        spark.conf.set("spark.sql.iceberg.compression-level", "1")
        spark.conf.set("spark.sql.iceberg.vectorization.batch-size", "20000")
        return strategies.Stock(spark)
    run = strategies.Product(spark, folder, "full")
    run.policy = replace(run.policy, strategy=RewriteStrategy(variant))
    return run


if __name__ == "__main__":
    main()
