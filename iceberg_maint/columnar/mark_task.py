"""The task that finds the rows under equality deletes by their key columns, and its result: values that cross a process
boundary as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from iceberg_maint.columnar.task import InputFile
from iceberg_maint.core.model.codec import dumps, loads


@dataclass(frozen=True, slots=True)
class EqualityDelete:
    """An equality delete file in Parquet. `field_ids` are those of its key columns, `bounds` the lower and upper ones of
    its metadata by field id, as hexadecimal text."""

    path: str
    size_bytes: int
    record_count: int
    data_sequence_number: int
    field_ids: tuple[int, ...]
    bounds: Mapping[int, tuple[str | None, str | None]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MarkTask:
    """Data files of one spec and partition, and the equality deletes of that scope or of the whole table.

    A delete applies to a data file with a lower sequence number. `constants` has the values of identity-partitioned
    columns by field id, as Iceberg's JSON single values: Iceberg's readers return these, whatever the file holds.
    `schema` and `name_mapping` are Iceberg's JSON texts. Rows are compared in slices of `slice_rows`.
    """

    inputs: tuple[InputFile, ...]
    deletes: tuple[EqualityDelete, ...]
    schema: str
    name_mapping: str | None = None
    constants: Mapping[int, object] = field(default_factory=dict)
    slice_rows: int = 1 << 20
    io: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """The task as JSON."""
        return dumps(self)

    @classmethod
    def from_json(cls, text: str) -> MarkTask:
        """Reads a task that `to_json` wrote."""
        return loads(cls, text)


@dataclass(frozen=True, slots=True)
class MarkResult:
    """The deleted positions of each data file that has any, as a portable 64-bit Roaring bitmap in Base64. Positions
    that position deletes or deletion vectors delete are left out. `unsupported` says why the join must do the task, `wrong_input` what a file does not
    hold, `wrong_bounds` which delete file has keys outside its bounds."""

    positions: Mapping[str, str] = field(default_factory=dict)
    unsupported: str = ""
    wrong_input: str = ""
    wrong_bounds: str = ""

    def to_json(self) -> str:
        """The result as JSON."""
        return dumps(self)

    @classmethod
    def from_json(cls, text: str) -> MarkResult:
        """Reads a result that `to_json` wrote."""
        return loads(cls, text)
