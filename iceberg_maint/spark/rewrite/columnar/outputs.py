"""Divides the input files of a group among its output files, and names the output files."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from iceberg_maint.core.planning.inputs import FileGroup, InputFile

_ATTEMPT = "-0-"


def divided(group: FileGroup) -> list[list[InputFile]]:
    """The input files of each output file: whole files in their order, about the same number of bytes each. There
    are at most as many output files as the plan expects."""
    count = min(group.expected_output_files, len(group.files))
    share = group.input_bytes / max(1, count)
    parts: list[list[InputFile]] = []
    taken = 0
    for file in group.files:
        middle = taken + file.size_bytes / 2
        wanted = min(count, int(middle // share) + 1 if share else 1)
        if not parts or len(parts) < wanted:
            parts.append([])
        parts[-1].append(file)
        taken += file.size_bytes
    return parts


def new_location(table: Any, task: Any, number: int, operation_id: str) -> str:
    """A location for the rows of a Java scan task's partition, named as Iceberg's `OutputFileFactory` names files:
    partition, task, operation, count."""
    name = f"{number:05d}{_ATTEMPT}{operation_id}-00001.parquet"
    file = task.file()
    spec = table.specs()[file.specId()]
    provider = table.locationProvider()
    if spec.isUnpartitioned():
        location = provider.newDataLocation(name)
    else:
        location = provider.newDataLocation(spec, file.partition(), name)
    return str(table.io().newOutputFile(location).location())


def new_operation_id() -> str:
    """An id that no other write has."""
    return str(uuid4())


def of_attempt(location: str, attempt: int) -> str:
    """The location for an attempt of a task. Two attempts may run at the same time, so they write different files."""
    folder, _, name = location.rpartition("/")
    return f"{folder}/{name.replace(_ATTEMPT, f'-{attempt}-', 1)}"
