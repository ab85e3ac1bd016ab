"""Inputs of a plan: data files in groups, equality deletes, position deletes."""

from __future__ import annotations

from dataclasses import dataclass, field

from iceberg_maint.core.model.codec import OMITTED_IF_NONE


@dataclass(frozen=True, slots=True)
class InputFile:
    """One data file to rewrite. `delete_files` are the paths of the position deletes and
    deletion vectors that apply to it at the pinned snapshot. `first_row_id` is as in `LiveFile`. It is also
    None if the plan was stored by a program that did not state it."""

    path: str
    size_bytes: int
    record_count: int
    data_sequence_number: int
    delete_files: tuple[str, ...] = ()
    first_row_id: int | None = field(default=None, metadata={OMITTED_IF_NONE: True})


@dataclass(frozen=True, slots=True)
class EqualityDeleteFile:
    """One equality delete file that a batch applies to its data files.

    It applies to data with a strictly lower sequence number, in its own spec and partition or,
    when `everywhere`, in all. `drop`: once the batch is committed no live data file needs it, so
    it goes with the same commit.
    """

    path: str
    spec_id: int
    partition: str
    everywhere: bool
    equality_ids: tuple[int, ...]
    data_sequence_number: int
    record_count: int
    size_bytes: int
    drop: bool

    @property
    def identity(self) -> tuple[str, int | None]:
        """Its path, and no offset."""
        return self.path, None


@dataclass(frozen=True, slots=True)
class PositionDeleteFile:
    """One position delete file or deletion vector that goes with the batch's commit.

    What it marks of live data files is written anew, unless it is `void`: it applies to none, and
    nothing is read of it. `referenced_data_file` is None where it is scoped to its partition.
    """

    path: str
    spec_id: int
    partition: str
    data_sequence_number: int
    record_count: int
    size_bytes: int
    referenced_data_file: str | None = None
    content_offset: int | None = None
    void: bool = False

    @property
    def identity(self) -> tuple[str, int | None]:
        """Path and, of a deletion vector, offset: vectors share a path."""
        return self.path, self.content_offset


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files of one partition and spec, written together by one job; where only deletes are written,
    the data files that those of the batch may apply to.

    `output_spec_id` differs from `spec_id` only when policy moves files to the current spec.
    """

    partition: str
    spec_id: int
    output_spec_id: int
    files: tuple[InputFile, ...]
    expected_output_files: int

    @property
    def input_bytes(self) -> int:
        """Bytes of the input files."""
        return sum(f.size_bytes for f in self.files)
