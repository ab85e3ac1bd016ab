"""Runs in Spark's Python workers: one task of the columnar engine, or of the proof of statistics, from JSON to JSON. What it imports, each new worker
imports, so it imports nothing that plans."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from iceberg_maint.columnar.storage import digest_of
from iceberg_maint.columnar.task import RewriteTask, UnsupportedColumnError, WrongInputError

ATTEMPT = "-0-"
"""Where a name has the number of the attempt."""


def of_attempt(location: str, attempt: int) -> str:
    """The location for an attempt of a task. Two attempts may run at the same time, so they write different files."""
    folder, _, name = location.rpartition("/")
    return f"{folder}/{name.replace(ATTEMPT, f'-{attempt}-', 1)}"


_LOCAL: Mapping[str, str] = {}
_NO_BYTES = "Python allocated no memory"


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of one task. `content` is content-file JSON of the file at `path` without what the file has in common
    with its input; None if no row is left. `digest` is its SHA-256. `difference` is "" if the proof holds.
    `unsupported` says why the strategy cannot do the task, `wrong_input` what an input file does not hold,
    `out_of_memory` which memory the process did not get."""

    path: str
    read_records: int = 0
    kept_records: int = 0
    written_records: int = 0
    content: Mapping[str, Any] | None = None
    digest: str = ""
    difference: str = ""
    unsupported: str = ""
    wrong_input: str = ""
    out_of_memory: str = ""

    @classmethod
    def of_text(cls, text: str) -> TaskResult:
        """Reads a result that a worker returned."""
        return cls(**json.loads(text))

    def text(self) -> str:
        """The result as JSON."""
        return json.dumps(asdict(self))


def rewrite_task(
    text: str, attempt: int, io: Mapping[str, str] = _LOCAL, most_decoded_bytes: int | None = None
) -> str:
    """Runs one task and returns its `TaskResult` as JSON. `io` has the properties of the table's FileIO. Raises
    DecodedSizeError if the rows may take more than `most_decoded_bytes`, before it decodes them."""
    import pyarrow as pa  # the driver does not need it

    from iceberg_maint.columnar.rewrite import rewrite
    from iceberg_maint.columnar.storage import MissingFileError

    task = RewriteTask.from_json(text)
    location = of_attempt(task.output_path, attempt)
    try:
        result = rewrite(replace(task, output_path=location, io=io), most_decoded_bytes)
    except UnsupportedColumnError as why:
        return TaskResult(location, unsupported=str(why)).text()
    except WrongInputError as why:
        if isinstance(why, MissingFileError) and why.location == location:
            raise
        return TaskResult(location, wrong_input=str(why)).text()
    except MemoryError as why:
        return TaskResult(location, out_of_memory=str(why) or _NO_BYTES).text()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as why:
        return TaskResult(location, unsupported=f"Arrow cannot rewrite the rows: {why}").text()
    proof = result.proof
    is_written = result.record_count > 0
    return TaskResult(
        path=location,
        read_records=proof.rows_in,
        kept_records=proof.rows_in - proof.rows_deleted,
        written_records=result.record_count,
        content={**content_of(json.loads(result.to_json())), "file-path": location} if is_written else None,
        digest=result.digest,
        difference=proof.difference,
    ).text()


def digest_task(location: str, _attempt: int, io: Mapping[str, str] = _LOCAL) -> str:
    """The SHA-256 of a file."""
    from iceberg_maint.columnar.storage import Storage

    return digest_of(Storage(io).chunks(location))


def content_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an output's content-file JSON that follows from the engine's result, given as JSON."""
    metrics = result["metrics"]
    content: dict[str, Any] = {
        "file-size-in-bytes": result["size_bytes"],
        "record-count": result["record_count"],
    }
    for name in ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts"):
        content[name.replace("_", "-")] = _pairs(metrics[name])
    for name in ("lower_bounds", "upper_bounds"):
        content[name.replace("_", "-")] = _pairs({k: v.upper() for k, v in metrics[name].items()})
    content["split-offsets"] = metrics["split_offsets"]
    content["sort-order-id"] = result["sort_order_id"]
    return content


def _pairs(values: Mapping[str, Any]) -> dict[str, list[Any]]:
    ordered = sorted((int(key), value) for key, value in values.items())
    return {"keys": [key for key, _ in ordered], "values": [value for _, value in ordered]}


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """The result for one file. `difference` is "" if its statistics are those of its rows. `unsupported` says why they
    were not compared."""

    difference: str = ""
    unsupported: str = ""


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
