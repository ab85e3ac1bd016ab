"""Storage behind PyIceberg's FileIO: the Arrow or fsspec file system that the FileIO uses, with its credentials."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, FSSpecHandler, PyFileSystem
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from iceberg_maint.catalog.store_service import NANOSECONDS_PER_MS, coded_errors, store_time_ms
from iceberg_maint.core.model.location import cut_path
from iceberg_maint.errors import ArchivedFileError
from iceberg_maint.machine.files import read_whole
from iceberg_maint.ports.storage import StoredFile

_CHUNK_BYTES = 1 << 20
_LARGEST_COPY_BYTES = 5 << 30
"""S3 copies larger objects in parts only."""
_COPY_CHUNK_BYTES = 16 << 20
_WITH_HOST = ("file", "hdfs", "viewfs")
"""Schemes of locations whose authority is no part of the path in Arrow's file system."""
_ARCHIVED = (
    "OBJECT_NOT_IN_ACTIVE_TIER",
    "ObjectNotInActiveTier",
    "INVALID_OBJECT_STATE",
    "InvalidObjectState",
)
"""What S3 answers for an object in Glacier or in an archive tier."""
_OBJECT_STORES = ("s3", "gcs", "abfs")
"""Names of Arrow file systems that can write a file without creating a folder."""


class LiteralFileIO(PyArrowFileIO):
    """The FileIO that `listing` registers for the schemes of Hadoop's file systems, with each location as the name that it is.

    PyIceberg parses a location as a URL, and so cuts it at `?` and `#`. Hadoop's file systems take both as part of a name, as
    they do `%`. On S3, Iceberg's own FileIO cuts locations as PyIceberg does."""

    @staticmethod
    def parse_location(location: str, properties: Properties = EMPTY_DICT) -> tuple[str, str, str]:
        """Returns scheme, authority and the whole path."""
        cut = cut_path(location)
        scheme, netloc, path = PyArrowFileIO.parse_location(cut, properties)
        return scheme, netloc, path + location[len(cut) :]


class ArrowStore:
    """Any Arrow file system. `resolve` returns the file system of a location and the path in it. A move
    is a copy and a delete if the store cannot rename. Arrow returns a listing as a whole, so its memory grows
    with the number of files: about 0.8 kB per file."""

    at_once = 16
    bulk = 0
    resumes = False

    def __init__(self, resolve: Callable[[str], tuple[FileSystem, str]]) -> None:
        self._resolve = resolve

    def list(self, prefix: str) -> Iterator[StoredFile]:
        """Yields every file below the prefix.

        One recursive listing, because subfolders are no reliable way to the files below them: GCS returns
        only subfolders that have an object of their own, and for the key `t//1` S3 returns the folder `t` as
        its own subfolder.
        """
        base = prefix.rstrip("/")
        system, root = self._resolve(base)
        with coded_errors(prefix):
            infos = system.get_file_info(FileSelector(root, allow_not_found=True, recursive=True))
        while infos:
            info = infos.pop()  # releases its memory
            if info.type is FileType.File:
                yield _of_info(base + info.path[len(root) :], info)

    def list_after(self, prefix: str, after: str) -> Iterator[StoredFile]:
        """Not available: Arrow returns a listing as a whole."""
        raise NotImplementedError

    def stat(self, path: str) -> StoredFile | None:
        """Returns the file, None if it does not exist."""
        system, place = self._resolve(path)
        with coded_errors(path):
            info = system.get_file_info(place)
        return _of_info(path, info) if info.type is FileType.File else None

    def now_ms(self, folder: str) -> int:
        """Returns the store's time, from an object that is written there and removed."""
        # No other object has this name, so no request looks for one.
        return store_time_ms(self, folder, self._write)

    def read(self, path: str, most_bytes: int | None = None) -> bytes:
        """Returns the whole file, or this much of its beginning. Raises FileNotFoundError."""
        system, place = self._resolve(path)
        with coded_errors(path), system.open_input_file(place) as stream:
            return bytes(read_whole(stream, path, length=most_bytes))

    def read_lines(self, path: str) -> Iterator[bytes]:
        """Yields the lines of the file. Raises FileNotFoundError."""
        system, place = self._resolve(path)
        partial_line = b""
        with coded_errors(path), system.open_input_file(place) as stream:
            for offset in range(0, stream.size(), _CHUNK_BYTES):
                chunk = bytes(read_whole(stream, path, offset, _CHUNK_BYTES))
                *lines, partial_line = (partial_line + chunk).split(b"\n")
                yield from (line + b"\n" for line in lines)
        if partial_line:
            yield partial_line

    def create(self, path: str, lines: Iterable[bytes]) -> None:
        """Writes a new file. An object store acknowledges a write when it is durable."""
        if self.stat(path) is not None:
            raise FileExistsError(path)
        self._write(path, lines)

    def _write(self, path: str, lines: Iterable[bytes]) -> None:
        system, place = self._resolve(path)
        with coded_errors(path):
            _make_parent(system, place)
            with system.open_output_stream(place) as out:
                for line in lines:
                    out.write(line)

    def move(self, source: str, target: str) -> None:
        """Moves a file within its store. Raises FileExistsError, FileNotFoundError, ArchivedFileError."""
        (system, old), (_, new) = self._resolve(source), self._resolve(target)
        with coded_errors(source):
            if self.stat(target) is not None:
                raise FileExistsError(target)
            _make_parent(system, new)
            try:
                system.move(old, new)
            except OSError as error:
                # Arrow returns the store's answer as text.
                if any(word in str(error) for word in _ARCHIVED):
                    raise ArchivedFileError(source) from error
                stored = self.stat(source)
                if stored is None:
                    raise FileNotFoundError(source) from None
                if system.type_name != "s3" or stored.size_bytes <= _LARGEST_COPY_BYTES:
                    raise
                _copy_by_parts(system, old, new, stored.size_bytes)
                system.delete_file(old)

    def delete(self, path: str) -> None:
        """Deletes a file if it exists."""
        system, place = self._resolve(path)
        # Arrow looks for the file itself.
        with coded_errors(path), suppress(FileNotFoundError):
            system.delete_file(place)

    def delete_bulk(self, paths: Sequence[str]) -> frozenset[str]:
        """Deletes nothing: Arrow has no such request."""
        return frozenset(paths)

    def tidy(self, folder: str) -> None:
        """Removes the folder and those below it if they hold no file. Arrow creates an object for every
        folder whose last file it removes."""
        system, place = self._resolve(folder.rstrip("/"))
        with coded_errors(folder):
            entries = system.get_file_info(FileSelector(place, allow_not_found=True, recursive=True))
            if entries and all(info.type is FileType.Directory for info in entries):
                system.delete_dir(place)


def _copy_by_parts(system: FileSystem, source: str, target: str, size_bytes: int) -> None:
    """Copies a file that is too large for one request, through this process: Arrow uploads it in parts. Raises
    OSError if the copy has not the size of the file; then there is no copy."""
    try:
        with system.open_input_file(source) as data, system.open_output_stream(target) as out:
            for offset in range(0, data.size(), _COPY_CHUNK_BYTES):
                out.write(read_whole(data, source, offset, _COPY_CHUNK_BYTES))
        copied_bytes = system.get_file_info(target).size
        if copied_bytes != size_bytes:
            raise OSError(f"the copy of {source} has {copied_bytes} bytes, the file {size_bytes}")
    except BaseException:
        # Arrow completes the upload of a stream that is closed early.
        with suppress(OSError):
            system.delete_file(target)
        raise


def _make_parent(system: FileSystem, path: str) -> None:
    """Creates the parent folder where the file system needs one. Object stores have no folders: creating
    one would create an object."""
    if system.type_name not in _OBJECT_STORES:
        system.create_dir(path.rpartition("/")[0], recursive=True)


def file_system(io: FileIO, location: str) -> tuple[FileSystem, str]:
    """Returns the Arrow file system that a FileIO reads a location with, and the path in it. In an object store every
    character is part of the key. PyIceberg cuts a location at `?` and `#` and drops line breaks, and so finds another
    object: the live file of which this one is a copy."""
    any_io: Any = io
    if hasattr(any_io, "fs_by_scheme"):
        scheme, separator, address = location.partition("://")
        if separator and scheme.lower() not in _WITH_HOST:
            return any_io.fs_by_scheme(scheme.lower(), address.partition("/")[0]), address
        scheme, netloc, path = any_io.parse_location(location, any_io.properties)
        return any_io.fs_by_scheme(scheme, netloc), path
    scheme, _, address = location.partition("://")
    system = any_io.get_fs(scheme, address.partition("/")[0].rpartition("@")[2] or None)
    return PyFileSystem(FSSpecHandler(_FreshFiles(system))), system._strip_protocol(location)


class _FreshFiles:
    """A file system of fsspec, for Arrow. That of Azure has the time of a file under another name than Arrow reads, and
    keeps listings."""

    def __init__(self, system: Any) -> None:
        self._system = system

    def __getattr__(self, name: str) -> Any:
        return getattr(self._system, name)

    def info(self, path: str) -> dict[str, Any]:
        self._system.invalidate_cache()
        return _timed(self._system.info(path))

    def find(self, folder: str, **options: Any) -> dict[str, dict[str, Any]]:
        self._system.invalidate_cache()
        return {path: _timed(info) for path, info in self._system.find(folder, **options).items()}


def _timed(info: Mapping[str, Any]) -> dict[str, Any]:
    return {**info, "mtime": info.get("mtime") or info.get("last_modified") or info.get("LastModified")}


def _of_info(path: str, info: FileInfo) -> StoredFile:
    time_ns = info.mtime_ns
    return StoredFile(path, info.size, None if time_ns is None else time_ns // NANOSECONDS_PER_MS)
