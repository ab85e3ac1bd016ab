"""Divides the input files of a group among its output files, and names the output files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from iceberg_maint.core.planning.inputs import FileGroup, InputFile
from iceberg_maint.engines.spark.rewrite.columnar.attempt import ATTEMPT


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


@dataclass(frozen=True, slots=True)
class Output:
    """One output file: its location, the number of its group, the content-file JSON of an input file of the group, and
    its input files."""

    location: str
    group: int
    template: Mapping[str, Any]
    files: Sequence[InputFile]

    @property
    def input_bytes(self) -> int:
        return sum(f.size_bytes for f in self.files)


class NewLocations:
    """Locations of new data files of a Java table, named as Iceberg's `OutputFileFactory` names files: partition,
    task, operation, count."""

    def __init__(self, table: Any, operation_id: str) -> None:
        self._operation_id = operation_id
        self._provider, self._io = table.locationProvider(), table.io()
        self._table = table
        self._specs: dict[int, tuple[Any, bool]] = {}

    def __call__(self, file: Any, spec_id: int, number: int) -> str:
        """Returns the location of an output file with the partition of a Java data file."""
        name = f"{number:05d}{ATTEMPT}{self._operation_id}-00001.parquet"
        if spec_id not in self._specs:
            spec = self._table.specs()[spec_id]
            self._specs[spec_id] = spec, bool(spec.isUnpartitioned())
        spec, is_unpartitioned = self._specs[spec_id]
        if is_unpartitioned:
            location = self._provider.newDataLocation(name)
        else:
            location = self._provider.newDataLocation(spec, file.partition(), name)
        return str(self._io.newOutputFile(location).location())


def new_operation_id() -> str:
    """An id that no other write has."""
    return str(uuid4())
