"""A file of which only some bytes are in memory."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from iceberg_maint.columnar.storage import Storage

TAIL_BYTES = 64 * 1024
"""The bytes that are read with the footer: the page index is in front of it."""


class FileRange:
    """The bytes of a file, sliced as one object. The last bytes are in memory. A slice of others is read from storage,
    unless all bytes are held."""

    def __init__(self, storage: Storage, location: str, size_bytes: int, *, hold: bool) -> None:
        self._storage, self._location, self._size = storage, location, size_bytes
        self.contents: pa.Buffer | None = None
        self._tail_start, self._tail = size_bytes, memoryview(b"")
        if hold:
            self.hold()
        else:
            self._tail_start = max(0, size_bytes - TAIL_BYTES)
            self._tail = _bytes(storage.read_range(location, self._tail_start, size_bytes - self._tail_start))

    def hold(self) -> pa.Buffer:
        """Reads all bytes, if they are not held. Returns them."""
        if self.contents is None:
            self.contents = self._storage.read(self._location)
            self._size = len(self.contents)
        return self.contents

    def release(self) -> None:
        """Holds the last bytes only."""
        if self.contents is not None:
            self._tail_start = max(0, self._size - TAIL_BYTES)
            self._tail = memoryview(bytes(memoryview(self.contents)[self._tail_start :]))
            self.contents = None

    def chunks(self) -> Iterator[Any]:
        """Yields the bytes in parts, from storage if they are not held."""
        return iter([self.contents]) if self.contents is not None else self._storage.chunks(self._location)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> memoryview:
        start, stop, _ = part.indices(self._size)
        if self.contents is not None:
            return _bytes(self.contents)[start:stop]
        if start >= self._tail_start:
            return self._tail[start - self._tail_start : stop - self._tail_start]
        return _bytes(self._storage.read_range(self._location, start, max(0, stop - start)))


def _bytes(contents: pa.Buffer) -> memoryview:
    return memoryview(contents).cast("B")


class _Stream(io.RawIOBase):
    """A stream of a FileRange, for Arrow."""

    def __init__(self, data: FileRange) -> None:
        self._data, self._position = data, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: len(self._data)}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int | None = -1) -> memoryview:
        # Arrow takes any bytes. A copy would be in memory that Python asks the system for.
        stop = len(self._data) if size is None or size < 0 else self._position + size
        found = self._data[self._position : stop]
        self._position += len(found)
        return found


def arrow_file(data: Any) -> pa.NativeFile:
    """Returns Arrow's file of a FileRange or of a buffer."""
    if isinstance(data, FileRange):
        return (
            pa.PythonFile(_Stream(data), mode="r")
            if data.contents is None
            else pa.BufferReader(data.contents)
        )
    return pa.BufferReader(data)
