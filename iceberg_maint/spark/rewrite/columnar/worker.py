"""Runs in Spark's Python workers: one task, from JSON to JSON. Nothing here imports Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from iceberg_maint.spark.rewrite.columnar.fingerprint import digest_of
from iceberg_maint.spark.rewrite.columnar.outputs import of_attempt

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of one task. `content` is content-file JSON of the file at `path` without what the file has in common
    with its input; None if no row is left. `digest` is its SHA-256. `difference` is "" if the proof holds.
    `unsupported` says why the strategy cannot do the task."""

    path: str
    read_records: int = 0
    kept_records: int = 0
    written_records: int = 0
    content: Mapping[str, Any] | None = None
    digest: str = ""
    difference: str = ""
    unsupported: str = ""

    @classmethod
    def of_text(cls, text: str) -> TaskResult:
        """Reads a result that a worker returned."""
        return cls(**json.loads(text))

    def text(self) -> str:
        """The result as JSON."""
        return json.dumps(asdict(self))


def digest_task(location: str, _attempt: int) -> str:
    """The SHA-256 of a file."""
    return digest_of(_chunks(location))


def local_path(location: str) -> str:
    """The path of a location on a file system of this machine. A percent sign is part of the name, as in Hadoop's
    paths."""
    return "/" + location.removeprefix("file:").lstrip("/") if location.startswith("file:") else location


def _chunks(location: str) -> Iterator[bytes]:
    with open(local_path(location), "rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            yield chunk
