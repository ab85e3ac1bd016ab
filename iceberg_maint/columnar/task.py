"""The task of the columnar engine and its result: values that cross a process boundary as JSON.

A task names its input files in their order. The output holds their live rows in that order, in the table's schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from iceberg_maint.core.model.codec import dumps, loads

FULL_PROOF = "full"
STATISTICS_PROOF = "statistics"


class JsonText:
    """A frozen dataclass that crosses a process boundary."""

    __slots__ = ()

    def to_json(self) -> str:
        """The value as JSON."""
        return dumps(self)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads a value that `to_json` wrote."""
        return loads(cls, text)


class UnsupportedColumnError(Exception):
    """The engine cannot rewrite a column. `column` is its path in the table's schema, `reason` says why."""

    def __init__(self, column: str, reason: str) -> None:
        self.column = column
        self.reason = reason
        super().__init__(column, reason)

    def __str__(self) -> str:
        return f"Column {self.column}: {self.reason}"


class WrongInputError(Exception):
    """An input file does not hold what the task states, or cannot be decoded. Nothing of it may be committed."""


class NotParquetError(WrongInputError):
    """A file is of another format, or damaged at its end."""


def unreadable(sentence: str, why: Exception) -> WrongInputError:
    """The error of a file that Arrow cannot read. `sentence` names the file."""
    kind = NotParquetError if "magic bytes not found" in str(why) else WrongInputError
    return kind(f"{sentence}: {str(why).rstrip('.')}.")


class DeleteKind(StrEnum):
    """How a delete file states deleted positions."""

    POSITION_FILE = "position_file"
    DELETION_VECTOR = "deletion_vector"


@dataclass(frozen=True, slots=True)
class DeleteReference:
    """A v2 position delete file in Parquet, or the blob of a v3 deletion vector at `offset` in a Puffin file.

    `size_bytes` is the length of the blob, or of the file. A deletion vector always has an offset.
    `record_count` of a vector is its cardinality, which the task checks. None: not stated. `data_file` is the only data
    file that a position delete file names, by its metadata; None: any of its partition.
    """

    kind: DeleteKind
    path: str
    size_bytes: int
    offset: int | None = None
    record_count: int | None = None
    data_file: str | None = None


@dataclass(frozen=True, slots=True)
class InputFile:
    """A data file. `path` is as the manifest states it: position delete files name it so.

    `constants` has the values of identity-partitioned columns by field id, as Iceberg's JSON single values. They
    replace what the file has. `deletes` are the position deletes and deletion vectors that apply to the file.
    `deleted_positions` has further ones, as a portable 64-bit Roaring bitmap in Base64.
    """

    path: str
    size_bytes: int
    record_count: int
    data_sequence_number: int
    first_row_id: int | None = None
    constants: Mapping[int, object] = field(default_factory=dict)
    deletes: tuple[DeleteReference, ...] = ()
    deleted_positions: str = ""

    @property
    def has_deletes(self) -> bool:
        """Whether rows of the file may be deleted."""
        return bool(self.deletes or self.deleted_positions)


@dataclass(frozen=True, slots=True)
class Encoding:
    """How the output is encoded. `codec` is Iceberg's name: zstd, snappy, gzip, lz4, lz4_raw, uncompressed.
    `level` None:
    the default of Parquet's Java writer."""

    codec: str = "zstd"
    level: int | None = 3
    row_group_bytes: int = 128 * 1024 * 1024
    page_bytes: int = 1024 * 1024
    page_row_limit: int = 20_000
    dictionary_bytes: int = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RewriteTask(JsonText):
    """One output file.

    `schema` and `name_mapping` are Iceberg's JSON texts. `metrics_modes` has the mode of each leaf column by field id:
    none, counts, truncate(n) or full; a column that it lacks has `truncate(16)`. `keep_row_lineage`: the output has
    `_row_id` and `_last_updated_sequence_number` (v3). `io` has the properties of the table's FileIO. `splice`: pages
    may be copied where that is possible, which keeps the statistics of the inputs (`page_splice`).
    """

    inputs: tuple[InputFile, ...]
    output_path: str
    schema: str
    format_version: int
    name_mapping: str | None = None
    encoding: Encoding = Encoding()
    metrics_modes: Mapping[int, str] = field(default_factory=dict)
    sort_order_id: int = 0
    keep_row_lineage: bool = False
    memory_limit_bytes: int = 1024 * 1024 * 1024
    proof: str = FULL_PROOF
    io: Mapping[str, str] = field(default_factory=dict)
    splice: bool = False


@dataclass(frozen=True, slots=True)
class OutputMetrics:
    """The metrics of an output file by field id, as Iceberg's writer states them in a manifest. JSON has bounds as
    hexadecimal digits of the spec's binary single values."""

    column_sizes: Mapping[int, int] = field(default_factory=dict)
    value_counts: Mapping[int, int] = field(default_factory=dict)
    null_value_counts: Mapping[int, int] = field(default_factory=dict)
    nan_value_counts: Mapping[int, int] = field(default_factory=dict)
    lower_bounds: Mapping[int, bytes] = field(default_factory=dict)
    upper_bounds: Mapping[int, bytes] = field(default_factory=dict)
    split_offsets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RewriteProof:
    """What was proved of an output file. `difference` is "" if the proof holds, else the first difference."""

    level: str
    rows_in: int
    rows_deleted: int
    rows_out: int
    difference: str = ""

    @property
    def equal(self) -> bool:
        """Whether the proof holds."""
        return not self.difference


@dataclass(frozen=True, slots=True)
class RewriteResult(JsonText):
    """The output of a task. If no row is left, no file is written: `record_count` is 0 and `path` is "".

    `digest` is the SHA-256 of the bytes that were proved, as hexadecimal digits. `streamed`: the task ran in streaming mode.
    `spliced`: the field ids of the columns whose pages were copied. `cpu_seconds` has the CPU time by phase: read, decode,
    encode, metrics, copy, proof.
    """

    path: str
    size_bytes: int
    record_count: int
    sort_order_id: int
    metrics: OutputMetrics
    proof: RewriteProof
    streamed: bool = False
    cpu_seconds: Mapping[str, float] = field(default_factory=dict)
    spliced: tuple[int, ...] = ()
    digest: str = ""


@dataclass(frozen=True, slots=True)
class EqualityDelete:
    """An equality delete file in Parquet. `field_ids` are those of its key columns. By its metadata `bounds` are the lower
    and upper ones by field id, as hexadecimal text, and the columns `without_null` have no NULL."""

    path: str
    size_bytes: int
    record_count: int
    data_sequence_number: int
    field_ids: tuple[int, ...]
    bounds: Mapping[int, tuple[str | None, str | None]] = field(default_factory=dict)
    without_null: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DeletedPositionsTask(JsonText):
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


@dataclass(frozen=True, slots=True)
class DeletedPositionsResult(JsonText):
    """The deleted positions of each data file that has any, as a portable 64-bit Roaring bitmap in Base64. Positions
    that position deletes or deletion vectors delete are left out. `unsupported` says why the join must do the task, `wrong_input` what a file does not
    hold, `wrong_keys` which delete file has keys that its metadata denies."""

    positions: Mapping[str, str] = field(default_factory=dict)
    unsupported: str = ""
    wrong_input: str = ""
    wrong_keys: str = ""
