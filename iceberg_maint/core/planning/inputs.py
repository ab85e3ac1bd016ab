"""Inputs of a plan: data files in groups, equality deletes, position deletes, and the writer of their rows."""

from __future__ import annotations

from dataclasses import dataclass

from iceberg_maint.core.model.ids import PartitionKey


@dataclass(frozen=True, slots=True)
class InputFile:
    """One data file to rewrite. `delete_files` are the paths of the position deletes and deletion vectors
    that apply to it at the pinned snapshot. `first_row_id` is as in `LiveFile`."""

    path: str
    size_bytes: int
    record_count: int
    data_sequence_number: int
    delete_files: tuple[str, ...] = ()
    first_row_id: int | None = None


@dataclass(frozen=True, slots=True)
class EqualityDeleteFile:
    """One equality delete file that a batch applies to its data files.

    It applies to data with a strictly lower sequence number in its own spec and partition. If `everywhere`,
    it applies in all specs and partitions. `drop`: after the batch's commit no live data file needs it, so
    the same commit removes it.
    """

    path: str
    spec_id: int
    partition: PartitionKey
    everywhere: bool
    equality_ids: tuple[int, ...]
    data_sequence_number: int
    record_count: int
    size_bytes: int
    drop: bool

    @property
    def identity(self) -> tuple[str, int | None]:
        """Its path. The offset is None."""
        return self.path, None


@dataclass(frozen=True, slots=True)
class PositionDeleteFile:
    """One position delete file or deletion vector that the batch's commit removes.

    Its marks of live data files are written to new delete files. If it is `void`, it applies to no live data
    file and is not read. `referenced_data_file` is None if it is scoped to its partition.
    """

    path: str
    spec_id: int
    partition: PartitionKey
    data_sequence_number: int
    record_count: int
    size_bytes: int
    referenced_data_file: str | None = None
    content_offset: int | None = None
    void: bool = False

    @property
    def identity(self) -> tuple[str, int | None]:
        """Its path and, for a deletion vector, its offset: several vectors share a path."""
        return self.path, self.content_offset


@dataclass(frozen=True, slots=True)
class RowWriter:
    """Whether `columnar` or `native` writes the rows of a batch, and why. `reason` is "" for the strategy that the
    policy names."""

    columnar: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files of one partition and spec that one job writes together. If the job writes only deletes, they are
    the data files that the deletes of the batch may apply to.

    `output_spec_id` differs from `spec_id` only if the policy moves files to the current spec.
    """

    partition: PartitionKey
    spec_id: int
    output_spec_id: int
    files: tuple[InputFile, ...]
    expected_output_files: int

    @property
    def input_bytes(self) -> int:
        """Bytes of the input files."""
        return sum(f.size_bytes for f in self.files)
