"""Predicted against measured gain and time of real rewrites by Spark.

    python -m bench.predictions [--batches 60] [--seed 1]

One table of partitions with eight files each; the rows per file are drawn log-normally, so that batches read between some 100 kB
and some MB. Each partition is a batch. Every rewrite records its prediction before it runs; the errors are |predicted / measured - 1|
of the removed files (all batches), and of the seconds (batches with at least five earlier ones to learn from). Exits 1 if
a median is above 10 %.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
from math import log
from pathlib import Path
from typing import Any

from iceberg_maint.core.outcomes.outcome import BatchOutcome

CONFIG = """\
catalogs:
  lake: {{type: jdbc, uri: 'sqlite:///{dir}/catalog.db', warehouse: 'file://{dir}/wh'}}
ledger: 'sqlite:///{dir}/ledger.db'
spark: {{master: 'local[2]', conf: {{spark.sql.shuffle.partitions: '2'}}}}
defaults:
  windows: {{max_partitions_per_batch: 1, max_partitions_per_run: 1000}}
  rewrite_data_files: {{target_file_size_bytes: 2097152}}
"""
FILES = 8
LEAST_LEARNED = 5
TARGET = 0.10


def main() -> int:
    """Prints the errors and one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-predictions-") as scratch:
        done = _batches(Path(scratch), given.batches, random.Random(given.seed))
    pairs = [(b, b.predicted) for b in done if b.predicted is not None and b.snapshot_after is not None]
    files = [
        abs((b.input_files - p.output_files) / max(1, b.input_files - b.output_files) - 1) for b, p in pairs
    ]
    seconds = [abs(p.seconds / b.seconds - 1) for b, p in pairs if p.learned_from >= LEAST_LEARNED]
    figures = {
        "batches": len(pairs),
        "removed_files_error_median": round(statistics.median(files), 4),
        "removed_files_error_p90": round(_p90(files), 4),
        "seconds_error_median": round(statistics.median(seconds), 4),
        "seconds_error_p90": round(_p90(seconds), 4),
        "seconds_median": round(statistics.median(b.seconds for b, _ in pairs), 2),
    }
    print(json.dumps(figures))
    return int(figures["removed_files_error_median"] > TARGET or figures["seconds_error_median"] > TARGET)


def _batches(folder: Path, partitions: int, draw: random.Random) -> list[BatchOutcome]:
    from iceberg_maint.core.model.ids import Operation
    from iceberg_maint.runner.maintain import Request, maintain
    from iceberg_maint.wiring import load

    config = folder / "config.yaml"
    config.write_text(CONFIG.format(dir=folder), "utf-8")
    _make(folder, partitions, draw)
    runtime = load(config)
    request = Request("bench", operations=(Operation.REWRITE_DATA_FILES,))
    return [b for o in maintain(runtime.find("db.t"), request, runtime) for b in o.batches]


def _make(folder: Path, partitions: int, draw: random.Random) -> None:
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import IntegerType, NestedField, StringType

    catalog: Any = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/wh")
    catalog.create_namespace("db")
    schema = Schema(NestedField(1, "p", IntegerType()), NestedField(2, "v", StringType()))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"))
    table = catalog.create_table("db.t", schema, partition_spec=spec)
    weights = [draw.lognormvariate(log(2000), 0.8) for _ in range(partitions)]
    for _ in range(FILES):
        counts = [max(10, int(w * draw.lognormvariate(0, 0.5))) for w in weights]
        keys = [p for p, count in enumerate(counts) for _ in range(count)]
        values = [f"{draw.getrandbits(400):x}" for _ in keys]
        arrow = pa.schema([("p", pa.int32()), ("v", pa.string())])
        table.append(pa.table({"p": keys, "v": values}, schema=arrow))


def _p90(values: list[float]) -> float:
    return sorted(values)[int(0.9 * (len(values) - 1))]


if __name__ == "__main__":
    sys.exit(main())
