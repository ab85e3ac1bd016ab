"""Files of a task and their digests: local disks by the operating system, S3 by Arrow; whole, or only some bytes in memory.
Shortage of memory is no damage."""

from __future__ import annotations

import errno
import hashlib
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from io import FileIO
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from iceberg_maint.columnar.task import WrongInputError
from iceberg_maint.machine.files import read_whole

_CHUNK_BYTES = 1 << 20
_REMOTE_CHUNK_BYTES = 64 << 20
"""Of an object store, where each part is a request."""
_S3_SCHEMES = frozenset({"s3", "s3a", "s3n"})
_TRIES = 8
_OPTIONS = {
    "endpoint_override": ("s3.endpoint",),
    "access_key": ("s3.access-key-id",),
    "secret_key": ("s3.secret-access-key",),
    "session_token": ("s3.session-token",),
    "region": ("client.region", "s3.region"),
    "proxy_options": ("http-client.proxy-endpoint", "s3.proxy-uri"),
}
"""Options of Arrow's S3 client, and the properties of Iceberg's FileIO (Java, then Python) that have their values."""


class MissingFileError(WrongInputError):
    """No file exists at `location`."""

    def __init__(self, location: str) -> None:
        super().__init__(f"{location} does not exist.")
        self.location = location


@contextmanager
def _existing(location: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as why:
        raise MissingFileError(location) from why


class Storage:
    """Opens files by their locations. `properties` are those of the table's FileIO."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = tuple(sorted(properties.items()))

    def read(self, location: str) -> pa.Buffer:
        """Returns the contents of a file, read once. Raises MissingFileError."""
        with _existing(location):
            if (name := _local_name(location)) is not None:
                # Of a tiny file, a `Path` and a buffered stream take half of the time.
                with open(name, "rb", buffering=0) as local:  # noqa: PTH123
                    return _contents(local)
            system, key = self._place(location)
            with system.open_input_file(key) as stream:
                return read_whole(stream, location)

    def read_range(self, location: str, offset: int, length: int) -> pa.Buffer:
        """Returns a part of a file, less if the file ends in it. Raises MissingFileError."""
        with _existing(location):
            if (name := _local_name(location)) is not None:
                with open(name, "rb", buffering=0) as local:  # noqa: PTH123
                    return _contents(local, offset, length)
            system, key = self._place(location)
            with system.open_input_file(key) as stream:
                return read_whole(stream, location, offset, length)

    def size_bytes(self, location: str) -> int:
        """Returns the size of a file. Raises MissingFileError."""
        with _existing(location):
            if (path := local_path(location)) is not None:
                return path.stat().st_size
            system, key = self._place(location)
            with system.open_input_file(key) as stream:
                return int(stream.size())

    def chunks(self, location: str) -> Iterator[bytes]:
        """Yields the contents of a file in parts."""
        if (path := local_path(location)) is None:
            with _existing(location):
                system, key = self._place(location)
                with system.open_input_file(key) as stream:
                    for offset in range(0, stream.size(), _REMOTE_CHUNK_BYTES):
                        yield read_whole(stream, location, offset, _REMOTE_CHUNK_BYTES)
            return
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk

    def create(self, location: str) -> Any:
        """Returns a stream that writes a new file. On a local file system, a file that exists is an error. On S3 the
        names of new files are unique, and a request for a file that should not exist would be wasted."""
        if (path := local_path(location)) is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            return path.open("xb")
        system, key = self._place(location)
        return system.open_output_stream(key)

    def delete(self, location: str) -> None:
        """Deletes a file. A file that does not exist is no error."""
        if (path := local_path(location)) is not None:
            path.unlink(missing_ok=True)
            return
        system, key = self._place(location)
        try:
            system.delete_file(key)
        except FileNotFoundError:
            return

    def _place(self, location: str) -> tuple[fs.S3FileSystem, str]:
        """Returns the client and the path of bucket and key. A `?`, `#` or `%` is part of the key."""
        scheme, _, path = location.partition("://")
        if scheme not in _S3_SCHEMES:
            raise OSError(f"{location} is neither on a local file system nor on S3")
        return _client(path.partition("/")[0], self._properties), path


def _contents(local: FileIO, offset: int = 0, length: int | None = None) -> pa.Buffer:
    """Bytes of a file, in memory of Arrow, which keeps it for the next file. Python asks the system for it again."""
    there = max(0, os.fstat(local.fileno()).st_size - offset)
    local.seek(offset)
    buffer = pa.allocate_buffer(there if length is None else min(length, there))
    rest = memoryview(buffer)
    while rest and (count := local.readinto(rest)):
        rest = rest[count:]
    return buffer.slice(0, len(buffer) - len(rest))


@lru_cache(maxsize=8)
def _client(bucket: str, properties: tuple[tuple[str, str], ...]) -> fs.S3FileSystem:
    """The S3 client of a process for a bucket. It holds connections. Credentials that no property has come from the
    environment, the profile or the role of the machine."""
    given = dict(properties)
    values = {option: [given[n] for n in names if given.get(n)] for option, names in _OPTIONS.items()}
    options: dict[str, Any] = {option: found[0] for option, found in values.items() if found}
    if "region" not in options and "endpoint_override" not in options:
        options["region"] = fs.resolve_s3_region(bucket)
    virtual = given.get("s3.force-virtual-addressing", "").lower() == "true"
    tries = fs.AwsStandardS3RetryStrategy(max_attempts=_TRIES)
    return fs.S3FileSystem(force_virtual_addressing=virtual, retry_strategy=tries, **options)


def local_path(location: str) -> Path | None:
    """Returns the path of a location on a file system of this machine, None for a location elsewhere. A percent sign
    is part of the name, as in Hadoop's paths."""
    name = _local_name(location)
    return None if name is None else Path(name)


def _local_name(location: str) -> str | None:
    if location.startswith("file:"):
        return "/" + location.removeprefix("file:").lstrip("/")
    return location if location.startswith(os.sep) else None


def digest_of(chunks: Iterable[Any]) -> str:
    """Returns the SHA-256 of a file's contents, given in parts, as hexadecimal digits."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


_SIGNS = ("not enough memory", "bad_alloc", "Cannot allocate memory", "can't start new thread")
"""What the errors of codecs, of the system and of Python say of it. Arrow passes them on as errors of input and output."""


def is_shortage(error: BaseException) -> bool:
    """Whether memory ran out."""
    return (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or any(sign in str(error) for sign in _SIGNS)
    )


def raise_shortage(error: BaseException) -> None:
    """Raises MemoryError if memory ran out. Each handler that takes an error of Arrow for damage calls it first."""
    if is_shortage(error):
        raise MemoryError(str(error)) from error


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
