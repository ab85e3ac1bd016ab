"""The statistics of files that Spark wrote, against their rows: a part of the proof.

Counts and bounds of a manifest decide which files a query reads, and those of a footer which row groups. The fingerprint of
the rows does not cover them. Arrow, which did not write the files, reads the rows back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iceberg_maint.columnar.check.file_statistics import StatisticsTask
from iceberg_maint.columnar.task import OutputMetrics
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.rewrite.columnar.file_io_settings import NotColumnarError, io_of
from iceberg_maint.engines.spark.rewrite.columnar.job import Workers, run_tasks
from iceberg_maint.engines.spark.rewrite.columnar.tasks import metrics_modes
from iceberg_maint.engines.spark.rewrite.columnar.worker import FileStatistics, statistics_task
from iceberg_maint.engines.spark.scan.scan import Table
from iceberg_maint.ports.engine import WrittenFile


@dataclass(frozen=True, slots=True)
class StatisticsProof:
    """The comparison of all files. `difference` names the first difference, "" if there is none. `note` says why files were
    not compared."""

    difference: str = ""
    note: str = ""


def prove_statistics(bridge: Bridge, table: Table, files: Sequence[WrittenFile]) -> StatisticsProof:
    """Compares the counts and bounds of written data files with their rows, in one Spark job. ORC and Avro files, types that
    Arrow does not read, and stores that it does not serve have a note."""
    contents: list[dict[str, Any]] = [json.loads(f.content) for f in files]
    others = sorted({c["file-format"].lower() for c in contents} - {"parquet"})
    if others:
        return _not_compared(f"files of format {others[0]}")
    if problem := bridge.once(Workers).problem():
        return _not_compared(problem)
    try:
        io = io_of(table.java, (f.path for f in files))
    except NotColumnarError as why:
        return _not_compared(str(why))
    modes = metrics_modes(bridge, table, bridge.texts_by_key(table.java.properties()))
    tasks = [
        StatisticsTask(
            f.path, f.size_bytes, f.record_count, table.schema_json, metrics_of(c), modes
        ).to_json()
        for f, c in zip(files, contents, strict=True)
    ]
    texts = run_tasks(bridge, statistics_task, tasks, [f.size_bytes for f in files], io)
    results = [FileStatistics(**json.loads(text)) for text in texts]
    for file, result in zip(files, results, strict=True):
        if result.difference:
            return StatisticsProof(f"{file.path}: {result.difference}")
    unsupported = next((r.unsupported for r in results if r.unsupported), "")
    return _not_compared(unsupported) if unsupported else StatisticsProof()


def metrics_of(content: Mapping[str, Any]) -> OutputMetrics:
    """Returns the metrics of content-file JSON."""

    def pairs(name: str) -> dict[int, Any]:
        found = content.get(name) or {"keys": [], "values": []}
        return dict(zip(found["keys"], found["values"], strict=True))

    return OutputMetrics(
        column_sizes=pairs("column-sizes"),
        value_counts=pairs("value-counts"),
        null_value_counts=pairs("null-value-counts"),
        nan_value_counts=pairs("nan-value-counts"),
        lower_bounds={k: bytes.fromhex(v) for k, v in pairs("lower-bounds").items()},
        upper_bounds={k: bytes.fromhex(v) for k, v in pairs("upper-bounds").items()},
        split_offsets=tuple(content.get("split-offsets") or ()),
    )


def _not_compared(reason: str) -> StatisticsProof:
    return StatisticsProof(note=f"statistics not compared: {reason}")
