"""Draws the sample of a batch: numbers that follow from the batch's id, so that each attempt draws the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from iceberg_maint.core.model.table_state import NO_ROW_IDS
from iceberg_maint.core.planning.file_groups import AppliedDeletes
from iceberg_maint.core.planning.work import InputFile
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.conversion import LINEAGE
from iceberg_maint.engines.spark.jvm.functions import JavaFunctions
from iceberg_maint.engines.spark.jvm.java_errors import JVM_ERRORS, connection_lost, first_cause
from iceberg_maint.engines.spark.rewrite.columnar.tasks import Output, RowDeletes
from iceberg_maint.engines.spark.rewrite.columnar.worker import TaskResult
from iceberg_maint.engines.spark.scan.iceberg_reader import FilePart, IcebergReader
from iceberg_maint.engines.spark.scan.positions import position_index
from iceberg_maint.engines.spark.scan.scan import Table
from iceberg_maint.engines.spark.scan.staging import GroupTasks


class Draw:
    """The draws of one batch."""

    def __init__(self, batch_id: str) -> None:
        self._batch_id = batch_id

    def below(self, what: str, limit: int) -> int:
        """A number in [0, limit)."""
        digest = hashlib.sha256(f"{what} of {self._batch_id}".encode()).digest()
        return int.from_bytes(digest[:8], "big") * limit >> 64

    def falls_in(self, share: float) -> bool:
        """Whether the batch belongs to this share of all batches. Share 0 has none, 1 has all."""
        return self.below("batch", 1 << 32) < share * (1 << 32)

    def columns(self, sizes: Mapping[int, int], most: int, most_bytes: int) -> tuple[int, ...]:
        """Up to `most` columns, in the order of `sizes` (bytes by field id), that have up to `most_bytes` together. All
        if they fit. A column that does not fit beside those drawn before it is left out."""
        taken: set[int] = set()
        for field_id in sorted(sizes, key=lambda i: self.below(f"column {i}", 1 << 64)):
            if len(taken) < most and sizes[field_id] <= most_bytes:
                taken.add(field_id)
                most_bytes -= sizes[field_id]
        return tuple(i for i in sizes if i in taken)


def place_of(counts: Sequence[int], row: int) -> tuple[int, int]:
    """The number of the file that has this row of all files, and the rows of the file before it. `counts` are the rows of
    each file. Raises ValueError if there is no such row."""
    for number, count in enumerate(counts):
        if row < count:
            return number, row
        row -= count
    raise ValueError(f"the files have {sum(counts)} rows, none has number {row + sum(counts)}")


def column_bytes(
    fields: Sequence[Mapping[str, Any]], lineage: Collection[int], leaf_bytes: Mapping[int, int], scale: float
) -> dict[int, int]:
    """The bytes of each top-level column and lineage column by field id: those of its leaves, times `scale`. A column
    without stated bytes has the average of the others. `fields` are those of a schema's JSON."""
    stated = {f["id"]: [leaf_bytes[i] for i in _ids(f) if i in leaf_bytes] for f in fields}
    stated |= {i: [leaf_bytes[i]] if i in leaf_bytes else [] for i in lineage}
    known = [sum(sizes) for sizes in stated.values() if sizes]
    average = sum(known) // len(known) if known else 0
    return {i: int((sum(sizes) if sizes else average) * scale) for i, sizes in stated.items()}


def _ids(field: Mapping[str, Any]) -> list[int]:
    """The id of a field and those below it, from a schema's JSON."""
    return [field["id"], *_ids_of_type(field["type"])]


def _ids_of_type(kind: Any) -> list[int]:
    if isinstance(kind, str):
        return []
    if kind["type"] == "struct":
        return [i for f in kind["fields"] for i in _ids(f)]
    parts = ("element",) if kind["type"] == "list" else ("key", "value")
    return [i for p in parts for i in (kind[f"{p}-id"], *_ids_of_type(kind[p]))]


MOST_ROWS = 1000
MOST_FILES = 4
"""Input files of a sample. Each costs calls into the JVM."""
MOST_SKIPPED_ROWS = 100_000
"""Rows of an input file that are decoded to reach the sample. The reader skips none."""
MOST_POSITIONS = 100_000
"""Rows of the position delete files of an input file. The reader takes whole files."""
MOST_VALUES = 200_000
"""Values of an input file that are decoded."""
MOST_CHUNK_BYTES = 32 * 1024 * 1024
"""Bytes of a row group that the driver holds: the reader takes whole column chunks."""
MOST_ROW_BYTES = 4 * 1024 * 1024
"""Bytes of the sampled rows, as the files store them."""
_NOT_IN_FILE = 1 << 62
"""A lineage value of no row. The reader takes it where the output lacks the value."""


@dataclass(frozen=True, slots=True)
class SampleProof:
    """What a sample has shown. `difference` is "" if the rows are equal. `text` says what was compared, or why nothing
    was; None if the batch was not drawn."""

    text: str | None = None
    difference: str = ""


def compare_sample(
    bridge: Bridge,
    table: Table,
    planned: Sequence[GroupTasks],
    deletes: RowDeletes,
    written: Sequence[tuple[Output, TaskResult]],
    draw: Draw,
) -> SampleProof:
    """Compares rows of one of the written files with the rows of its inputs. Raises what Java raises if the written file
    cannot be read. An input that cannot be read is a sample without a comparison."""
    filled = [(output, result) for output, result in written if result.content is not None]
    if not filled:
        return _not_compared("no row is left")
    output, result = filled[draw.below("output file", len(filled))]
    inputs = _Inputs(bridge, table, output.files, planned[output.group].tasks, deletes)
    return _Sample(bridge, table, inputs, result, draw).proof()


class _Inputs:
    """The input files of an output file, with what deletes their rows."""

    def __init__(
        self,
        bridge: Bridge,
        table: Table,
        files: Sequence[InputFile],
        tasks: Any,
        deletes: RowDeletes,
    ) -> None:
        self._bridge, self._table, self._positions = bridge, table, deletes.deleted_positions
        self._functions = bridge.once(JavaFunctions)
        self.files = files
        self._tasks = tasks
        locations = self._functions.texts(tasks.stream().map(self._functions.task_location))
        self._numbers = {path: number for number, path in enumerate(locations)}
        self._deletes = AppliedDeletes(deletes.files)

    def live_count(self, file: InputFile) -> int | None:
        """The rows of a file that are not deleted, as metadata state it: position delete files do not."""
        applied = self._deletes.of_file(file)
        if any(d.content_offset is None for d in applied):
            return None
        return (
            file.record_count - sum(d.record_count for d in applied) - len(self._positions.get(file.path, ()))
        )

    def position_rows(self, file: InputFile) -> int:
        """The rows of the position delete files that apply to a file."""
        return sum(d.record_count for d in self._deletes.of_file(file) if d.content_offset is None)

    def constants(self, file: InputFile) -> Any:
        """The values of a file that Iceberg takes from metadata, as a Java map by field id."""
        return self._bridge.iceberg.util.PartitionUtil.constantsMap(self._task(file))

    def live_rows(self, reader: IcebergReader, file: InputFile, skipped: int, most: int) -> Any:
        """Live rows of a file, as a `java.util.List`."""
        deleted = None
        if file.delete_files:
            others = self._task(file).deletes().stream().filter(self._functions.is_equality_delete.negate())
            deleted = reader.deleted_positions(self._functions.to_list(others), file.path)
        if (positions := self._positions.get(file.path)) is not None:
            index = position_index(self._bridge, file.path, positions)
            if deleted is not None:
                index.merge(deleted)
            deleted = index
        part = FilePart(file.path, file.size_bytes)
        return reader.rows(part, self.constants(file), most, deleted=deleted, skipped=skipped)

    def _task(self, file: InputFile) -> Any:
        return self._tasks.get(self._numbers[file.path])


class _Sample:
    """The sample of one output file."""

    def __init__(self, bridge: Bridge, table: Table, inputs: _Inputs, result: TaskResult, draw: Draw) -> None:
        assert result.content is not None, "the file is written"
        self._bridge, self._table, self._inputs, self._draw = bridge, table, inputs, draw
        self._content: Mapping[str, Any] = result.content
        self._path, self._records = result.path, result.written_records
        self._size = int(self._content["file-size-in-bytes"])
        self._offsets = list(self._content["split-offsets"])

    def proof(self) -> SampleProof:
        """Compares the rows."""
        number, first_row, skipped, files = self._place()
        if not files:
            return _not_compared(
                f"more than {MOST_POSITIONS} rows of position delete files apply to an input file"
            )
        row_bytes = max(1, self._size // self._records)
        most = max(1, min(MOST_ROWS, MOST_ROW_BYTES // row_bytes))
        columns, of = self._columns(number, files, skipped + most)
        if not columns:
            return _not_compared(f"each column of {self._path} has more than {MOST_CHUNK_BYTES} bytes")
        reader = IcebergReader(self._bridge, self._table.java, columns)
        wanted = self._bridge.list(())
        try:
            for file in files:
                if wanted.size() < most:
                    wanted.addAll(self._inputs.live_rows(reader, file, skipped, most - int(wanted.size())))
                    skipped = 0
        except JVM_ERRORS as why:
            if connection_lost(why):
                raise
            return _not_compared(f"Iceberg cannot read the inputs: {first_cause(why)}")
        if wanted.isEmpty():
            return _not_compared(f"all rows of {len(files)} input files are deleted")
        found = self._written_rows(reader, number, int(wanted.size()))
        text = f"{found.size()} rows of row group {number} of {self._path}, {len(columns)} of {of} columns"
        if number == len(self._offsets) - 1 and found.size() < (
            rows := min(int(wanted.size()), self._records - first_row)
        ):
            return SampleProof(text, f"{self._path}: Iceberg reads {found.size()} rows of {rows}")
        wanted = self._bridge.list(wanted.subList(0, found.size()))
        for rows_of_side in (wanted, found):
            reader.forget_positions(rows_of_side)
        if wanted.equals(found):
            return SampleProof(text)
        return SampleProof(text, self._difference(columns, number, first_row, wanted, found))

    def _place(self) -> tuple[int, int, int, Sequence[InputFile]]:
        """A row group, the number of its first row, the live rows of its first input file that are in the row groups before
        it, and its first input files. It is the first row group if metadata do not show where another one begins in the
        inputs, or if the reader would decode too many rows before it."""
        files = self._inputs.files
        counts = [self._inputs.live_count(f) for f in files]
        number = self._draw.below("row group", len(self._offsets))
        known = [c for c in counts if c is not None]
        first_row = first = skipped = 0
        if number and len(known) == len(counts):
            first_row = self._first_row(number)
            first, skipped = place_of(known, first_row)
        if not first_row or skipped > MOST_SKIPPED_ROWS:
            number = first_row = first = skipped = 0
        living = [f for f, count in zip(files[first:], counts[first:], strict=True) if count != 0]
        cheap = takewhile(lambda f: self._inputs.position_rows(f) <= MOST_POSITIONS, living[:MOST_FILES])
        return number, first_row, skipped, tuple(cheap)

    def _row_group(self, number: int) -> FilePart:
        start = self._offsets[number]
        end = self._offsets[number + 1] if number + 1 < len(self._offsets) else self._size
        return FilePart(self._path, self._size, start, end - start)

    def _first_row(self, number: int) -> int:
        reader = IcebergReader(self._bridge, self._table.java, ())
        row = self._written_rows(reader, number, 1).get(0)
        return int(row.get(0))

    def _columns(
        self, number: int, files: Sequence[InputFile], decoded_rows: int
    ) -> tuple[tuple[int, ...], int]:
        """The columns of the sample, all if the limits allow it, and the number of all columns."""
        lineage = [LINEAGE[name] for name in self._table.lineage]
        comparable = lineage if all(f.first_row_id not in (None, NO_ROW_IDS) for f in files) else []
        largest = max(self._row_group(number).length or 0, *(f.size_bytes for f in files))
        fields = json.loads(self._table.schema_json)["fields"]
        pairs = self._content["column-sizes"]
        stated = dict(zip(pairs["keys"], pairs["values"], strict=True))
        sizes = column_bytes(fields, comparable, stated, largest / self._size)
        most = max(1, MOST_VALUES // decoded_rows)
        return self._draw.columns(sizes, most, MOST_CHUNK_BYTES), len(fields) + len(lineage)

    def _written_rows(self, reader: IcebergReader, number: int, most: int) -> Any:
        constants = self._bridge.jvm.java.util.HashMap(self._inputs.constants(self._inputs.files[0]))
        for field_id in LINEAGE.values():
            constants.put(field_id, _NOT_IN_FILE)
        return reader.rows(self._row_group(number), constants, most)

    def _difference(
        self, columns: Sequence[int], number: int, first_row: int, wanted: Any, found: Any
    ) -> str:
        """A sentence about the first row and column that differ."""
        row = next(i for i in range(found.size()) if not wanted.get(i).equals(found.get(i)))
        equal = self._bridge.jvm.java.util.Objects.deepEquals
        place = next(
            n for n in range(1, 1 + len(columns)) if not equal(wanted.get(row).get(n), found.get(row).get(n))
        )
        name = str(wanted.get(row).struct().fields().get(place).name())
        return (
            f"{self._path}: column {name}, row group {number}: Iceberg's reader decodes another value than in the "
            f"input files at row {first_row + row} of the file"
        )


def _not_compared(reason: str) -> SampleProof:
    return SampleProof(f"not compared: {reason}")
