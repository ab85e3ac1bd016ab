"""Deleted positions of data files, from position delete files (v2) and deletion vectors (v3)."""

from __future__ import annotations

import zlib
from base64 import b64decode
from typing import Any

import numpy as np
import pyarrow as pa

from iceberg_maint.columnar.parquet.reader import opened
from iceberg_maint.columnar.read.numbers import numbers_of
from iceberg_maint.columnar.storage import Storage, raise_shortage
from iceberg_maint.columnar.task import DeleteKind, DeleteReference, InputFile, WrongInputError, unreadable

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
        if file.marks:
            parts.append(_marked(file))
        marks = [p for p in parts if len(p)]
        return np.unique(np.concatenate(marks)) if marks else None

    def _read(self, reference: DeleteReference, data_file: str) -> np.ndarray[Any, Any]:
        if reference.kind is DeleteKind.DELETION_VECTOR:
            if reference.offset is None:
                raise WrongInputError(f"The deletion vector in {reference.path} has no offset.")
            blob = bytes(self._storage.read_range(reference.path, reference.offset, reference.size_bytes))
            found = vector_positions(blob, reference.path)
            if reference.record_count is not None and reference.record_count != len(found):
                raise WrongInputError(
                    f"The deletion vector in {reference.path} at {reference.offset} has {len(found)} positions; its "
                    f"manifest states {reference.record_count}."
                )
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
            raise WrongInputError(
                f"The delete file {reference.path} has {rows.num_rows} rows; its manifest states "
                f"{reference.record_count}."
            )
        if rows.column("file_path").null_count or rows.column("pos").null_count:
            raise WrongInputError(f"The delete file {reference.path} has a null path or position.")
        if rows.num_rows == 0:
            return {}
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


def _marked(file: InputFile) -> np.ndarray[Any, Any]:
    from pyroaring import BitMap64

    positions = np.asarray(BitMap64.deserialize(b64decode(file.marks)).to_array(), dtype=np.int64)
    if len(positions) and positions[-1] >= file.record_count:
        raise WrongInputError(
            f"{file.path} has {file.record_count} rows; row {positions[-1]} is marked deleted."
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
