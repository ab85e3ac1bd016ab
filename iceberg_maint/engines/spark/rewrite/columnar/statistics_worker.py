"""Runs in Spark's Python workers: compares the statistics of one written file with its rows. What it imports, each new
worker imports, so it imports nothing that plans."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

_LOCAL: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """The result for one file. `difference` is "" if its statistics are those of its rows. `unsupported` says why they
    were not compared."""

    difference: str = ""
    unsupported: str = ""

    @classmethod
    def of_text(cls, text: str) -> FileStatistics:
        """Reads a result that a worker returned."""
        values: dict[str, Any] = json.loads(text)
        return cls(**values)


def statistics_task(text: str, _attempt: int, io: Mapping[str, str] = _LOCAL) -> str:
    """Compares the file of a `StatisticsTask`, given as JSON. Returns `FileStatistics` as JSON. `io` has the properties of the
    table's FileIO."""
    from iceberg_maint.columnar.check.file_statistics import StatisticsTask, statistics_difference
    from iceberg_maint.columnar.storage import Storage
    from iceberg_maint.columnar.task import UnsupportedColumnError

    try:
        result = FileStatistics(statistics_difference(StatisticsTask.from_json(text), Storage(io)))
    except UnsupportedColumnError as why:
        result = FileStatistics(unsupported=str(why))
    except MemoryError as why:
        result = FileStatistics(unsupported=f"a task ran out of memory ({why})")
    return json.dumps(asdict(result))
