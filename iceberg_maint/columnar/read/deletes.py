"""Deleted rows: positions from position delete files (v2) and deletion vectors (v3), and keys of equality deletes (spec:
"Equality Delete Files").

An equality delete applies to a row if its sequence number is above that of the row's data file and all key columns are
equal as in Iceberg's reader: null equals null, a null struct does not equal a struct of nulls. The comparison is exact: the
values of a column become numbers, and so do the pairs of two columns. No hash is compared.
"""

from __future__ import annotations

import zlib
from base64 import b64decode
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iceberg_maint.columnar.parquet.reader import opened
from iceberg_maint.columnar.read.leaves import (
    FLOATS,
    Mask,
    Numbers,
    array_of_numbers,
    mask_of,
    numbers_of,
    scalar_of,
)
from iceberg_maint.columnar.read.schema import Column, Primitive, Struct
from iceberg_maint.columnar.storage import Storage, raise_shortage
from iceberg_maint.columnar.task import (
    DeleteKind,
    DeleteReference,
    InputFile,
    UnsupportedColumnError,
    WrongInputError,
    unreadable,
)
from iceberg_maint.errors import names_another_file, wrong_count, wrong_vector

_MAGIC = b"\xd1\xd3\x39\x64"
_FRAME_BYTES = 4


class Positions:
    """The deleted positions of the data files of a task. A position delete file is read once."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._files: dict[str, dict[str, np.ndarray[Any, Any]]] = {}

    def of(self, file: InputFile) -> np.ndarray[Any, Any] | None:
        """Returns the distinct deleted positions of a file in their order, None if it has none."""
        parts = [self._read(reference, file.path) for reference in file.deletes]
        if file.deleted_positions:
            parts.append(_positions_of_task(file))
        found = [p for p in parts if len(p)]
        return np.unique(np.concatenate(found)) if found else None

    def _read(self, reference: DeleteReference, data_file: str) -> np.ndarray[Any, Any]:
        if reference.kind is DeleteKind.DELETION_VECTOR:
            if reference.offset is None:
                raise WrongInputError(f"The deletion vector in {reference.path} has no offset.")
            blob = bytes(self._storage.read_range(reference.path, reference.offset, reference.size_bytes))
            found = vector_positions(blob, reference.path)
            if reference.record_count is not None and reference.record_count != len(found):
                place = f"The deletion vector in {reference.path} at {reference.offset}"
                raise WrongInputError(wrong_vector(place, len(found), reference.record_count))
            return found
        if reference.path not in self._files:
            self._files[reference.path] = self._delete_file(reference)
        return self._files[reference.path].get(data_file, np.empty(0, np.int64))

    def _delete_file(self, reference: DeleteReference) -> dict[str, np.ndarray[Any, Any]]:
        buffer = self._storage.read(reference.path)
        try:
            file = opened(buffer, dictionaries=["file_path"])
            rows = file.read(columns=["file_path", "pos"], use_threads=False).select(["file_path", "pos"])
            paths = rows.combine_chunks().unify_dictionaries().column("file_path").combine_chunks()
            names = paths.dictionary.to_pylist() if _has_form(rows.schema) else None
        except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError) as why:
            raise_shortage(why)
            raise unreadable(f"{reference.path} cannot be read as a position delete file", why) from why
        if names is None:
            # A path as bytes would equal no file's, and no row would be deleted.
            types = " and ".join(map(str, rows.schema.types))
            raise WrongInputError(f"{reference.path} has paths and positions of type {types}.")
        if reference.record_count is not None and reference.record_count != rows.num_rows:
            found = wrong_count(reference.path, rows.num_rows, reference.record_count)
            raise WrongInputError(f"The delete file {found}")
        if rows.column("file_path").null_count or rows.column("pos").null_count:
            raise WrongInputError(f"The delete file {reference.path} has a null path or position.")
        if rows.num_rows == 0:
            return {}
        if reference.data_file is not None and (others := {*names} - {reference.data_file}):
            raise WrongInputError(names_another_file(reference.path, min(others), reference.data_file))
        codes, positions = numbers_of(paths.indices), numbers_of(rows.column("pos").combine_chunks())
        order = np.argsort(codes, kind="stable")
        starts = np.searchsorted(codes[order], np.arange(len(names) + 1))
        sorted_positions = positions[order]
        return {name: sorted_positions[starts[i] : starts[i + 1]] for i, name in enumerate(names)}


def _has_form(schema: pa.Schema) -> bool:
    """Whether a position delete file has its paths as texts, with a dictionary, and its positions as integers."""
    path, position = schema.types
    is_text = pa.types.is_dictionary(path) and pa.types.is_string(path.value_type)
    return bool(is_text and pa.types.is_signed_integer(position))


def _positions_of_task(file: InputFile) -> np.ndarray[Any, Any]:
    from pyroaring import BitMap64

    positions = np.asarray(BitMap64.deserialize(b64decode(file.deleted_positions)).to_array(), dtype=np.int64)
    if len(positions) and positions[-1] >= file.record_count:
        raise WrongInputError(
            f"{file.path} has {file.record_count} rows; the position {positions[-1]} is deleted."
        )
    return positions


def vector_positions(blob: bytes, path: str) -> np.ndarray[Any, Any]:
    """Returns the positions of a `deletion-vector-v1` blob (Puffin spec): length, magic, bitmap, CRC-32. The numbers
    of the frame are big-endian."""
    length = int.from_bytes(blob[:_FRAME_BYTES], "big")
    content = blob[_FRAME_BYTES : _FRAME_BYTES + length]
    crc = int.from_bytes(blob[_FRAME_BYTES + length : 2 * _FRAME_BYTES + length], "big")
    if len(blob) != length + 2 * _FRAME_BYTES or not content.startswith(_MAGIC):
        raise WrongInputError(f"A blob of {path} is no deletion vector.")
    if zlib.crc32(content) != crc:
        raise WrongInputError(f"A deletion vector of {path} has a wrong checksum.")
    from pyroaring import BitMap64

    bitmap = BitMap64.deserialize(content[len(_MAGIC) :])
    return np.asarray(bitmap.to_array(), dtype=np.int64)


def key_schema(table: Struct, field_ids: Sequence[int]) -> Struct:
    """The part of a schema with the key columns and the structs around them, as Iceberg selects it. Raises
    UnsupportedColumnError for a key column that the schema lacks or has inside a list or a map, and for a floating-point
    one."""
    wanted = set(field_ids)
    selected = Struct(tuple(_selected(table.columns, wanted)))
    if wanted:
        reason = "an equality delete names it and no struct of the table has it"
        raise UnsupportedColumnError(f"with field id {min(wanted)}", reason)
    return selected


def _selected(columns: Sequence[Column], wanted: set[int]) -> Iterator[Column]:
    for column in columns:
        if isinstance(column.kind, Struct):
            children = tuple(_selected(column.kind.columns, wanted))
            if children:
                yield replace(column, kind=Struct(children))
        elif column.field_id in wanted and isinstance(column.kind, Primitive):
            if column.kind.base in FLOATS:
                raise UnsupportedColumnError(column.path, "keys of its type are not compared")
            wanted.discard(column.field_id)
            yield column


def key_columns(rows: pa.Table, keys: Struct) -> list[pa.Array]:
    """The key columns of rows, with whether each struct around a key is null, as arrays that compare by equality."""
    found: list[pa.Array] = []
    for column, values in zip(keys.columns, rows.columns, strict=True):
        array = values.combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
        _add(found, array, column)
    return found


def _add(found: list[pa.Array], array: pa.Array, column: Column) -> None:
    if isinstance(column.kind, Struct):
        found.append(array.is_valid())
        for child, values in zip(column.kind.columns, array.flatten(), strict=True):
            _add(found, values, child)
    else:
        found.append(array.storage if isinstance(array, pa.ExtensionArray) else array)


class KeySet:
    """Keys of equality deletes with the highest sequence number of a delete of each. The columns have one value per
    delete row, `sequence_numbers` that of its file."""

    def __init__(self, columns: Sequence[pa.Array], sequence_numbers: Numbers) -> None:
        self._values: list[pa.Array] = []
        self._pairs: list[pa.Array | None] = []
        codes: Numbers = np.zeros(len(sequence_numbers), dtype=np.int64)
        for number, column in enumerate(columns):
            values = pc.unique(column)
            own = numbers_of(pc.index_in(column, value_set=values)).astype(np.int64)
            self._values.append(values)
            if number == 0:
                self._pairs.append(None)
                codes = own
                continue
            # Fewer than 2^31 pairs and values each, so the product fits 63 bits.
            pairs = array_of_numbers(codes * max(1, len(values)) + own)
            distinct = pc.unique(pairs)
            codes = numbers_of(pc.index_in(pairs, value_set=distinct)).astype(np.int64)
            self._pairs.append(distinct)
        size = int(codes.max()) + 1 if len(codes) else 0
        self._highest: Numbers = np.full(size, -1, dtype=np.int64)
        np.maximum.at(self._highest, codes, sequence_numbers)

    def deleted(self, columns: Sequence[pa.Array], sequence_numbers: Numbers) -> Mask:
        """Which rows have a key of a delete with a higher sequence number than theirs."""
        rows = len(sequence_numbers)
        result: Mask = np.zeros(rows, dtype=bool)
        if not len(self._highest):
            return result
        codes: Numbers = np.zeros(rows, dtype=np.int64)
        matched: Mask = np.ones(rows, dtype=bool)
        for column, values, pairs in zip(columns, self._values, self._pairs, strict=True):
            own, found = _numbers(column, values)
            matched &= found
            if pairs is None:
                codes = own
            else:
                codes, found = _numbers(array_of_numbers(codes * max(1, len(values)) + own), pairs)
                matched &= found
        result[matched] = self._highest[codes[matched]] > sequence_numbers[matched]
        return result


def _numbers(column: pa.Array, values: pa.Array) -> tuple[Numbers, Mask]:
    """The number of each value, 0 for a value that has none, and whether it has one."""
    found = pc.index_in(column, value_set=values)
    known = mask_of(found.is_valid())
    return numbers_of(found.fill_null(scalar_of(0))).astype(np.int64), known
