"""Storage behind PyIceberg's FileIO. The operating system serves the local file system. The Arrow or
fsspec file system that the FileIO uses serves others, with its credentials."""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, FSSpecHandler, PyFileSystem
from pyiceberg.io import FileIO

from iceberg_maint.catalog.local_folders import opened_folder, root_of
from iceberg_maint.core.outcomes.failures import file_system_fix, is_environment, python_causes
from iceberg_maint.errors import ArchivedFileError, IcebergMaintError, RefusedError
from iceberg_maint.machine.private_files import PRIVATE_FILE
from iceberg_maint.machine.whole_reads import read_whole
from iceberg_maint.ports.storage import Store, StoredFile

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK_BYTES = 1 << 20
_NANOSECONDS = 1_000_000
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


class LocalStore:
    """The local file system. Locations are paths or `file:` URIs, taken literally: a percent sign is part
    of the name, as in Iceberg and PyIceberg. Below `root`, the table's location, no link is followed by what lists,
    creates, moves or deletes."""

    root = ""
    at_once = 1  # a rename takes less time than a thread needs to begin
    bulk = 0
    resumes = False

    def __init__(self, root: str = "") -> None:
        self.root = local_path(root)

    def list(self, prefix: str) -> Iterator[StoredFile]:
        """Yields every regular file below the prefix, folder by folder. Links are not followed."""
        path = local_path(prefix)
        root = root_of(path, self.root)
        base = prefix.rstrip("/")
        pending = [""]
        while pending:
            folder = pending.pop()
            with _permitted(prefix), _entries(path + folder, root) as entries:
                for entry in entries:
                    below = f"{folder}/{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(below)
                    elif entry.is_file(follow_symlinks=False):
                        try:
                            status = entry.stat(follow_symlinks=False)
                        except FileNotFoundError:
                            continue  # removed since its folder was read
                        yield _stored(base + below, status)

    def list_after(self, prefix: str, after: str) -> Iterator[StoredFile]:
        """Not available: folders are listed in no order."""
        raise NotImplementedError

    def stat(self, path: str) -> StoredFile | None:
        """Returns the file, None if it does not exist."""
        try:
            status = os.lstat(local_path(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError as error:
            raise denied(path, error) from error
        return _stored(path, status) if stat.S_ISREG(status.st_mode) else None

    def now_ms(self, folder: str) -> int:
        """Returns the file system's time, from a file that is written there and removed."""
        return _probe(self, folder, self.create)

    def read(self, path: str, most_bytes: int | None = None) -> bytes:
        """Returns the whole file, or this much of its beginning. Raises FileNotFoundError."""
        with _permitted(path), Path(local_path(path)).open("rb") as file:
            return file.read(most_bytes)

    def read_lines(self, path: str) -> Iterator[bytes]:
        """Yields the lines of the file. Raises FileNotFoundError."""
        with _permitted(path), Path(local_path(path)).open("rb") as lines:
            yield from lines

    def create(self, path: str, lines: Iterable[bytes]) -> None:
        """Writes a new file. The file and the entries of its folders are durable when this returns."""
        target = Path(local_path(path))
        with _permitted(path), opened_folder(str(target.parent), self.root, make=True) as folder:
            descriptor = os.open(target.name, _NEW_FILE, PRIVATE_FILE, dir_fd=folder)
            with open(descriptor, "wb") as out:  # noqa: PTH123 - a descriptor has no path
                out.writelines(lines)
                out.flush()
                os.fsync(out.fileno())
            os.fsync(folder)

    def move(self, source: str, target: str) -> None:
        """Renames a file. Raises FileExistsError, FileNotFoundError."""
        (old_folder, old), (new_folder, new) = (
            os.path.split(local_path(source)),
            os.path.split(local_path(target)),
        )
        try:
            with (
                opened_folder(old_folder, self.root) as old_fd,
                opened_folder(new_folder, self.root, make=True) as new_fd,
            ):
                if _exists(new, new_fd):
                    raise FileExistsError(target)
                os.rename(old, new, src_dir_fd=old_fd, dst_dir_fd=new_fd)
        except PermissionError as error:
            raise denied(source, error) from error

    def delete(self, path: str) -> None:
        """Deletes a file if it exists."""
        try:
            folder, name = os.path.split(local_path(path))
            with opened_folder(folder, self.root) as descriptor:
                os.unlink(name, dir_fd=descriptor)
        except FileNotFoundError:
            return
        except PermissionError as error:
            raise denied(path, error) from error

    def delete_bulk(self, paths: Sequence[str]) -> frozenset[str]:
        """Deletes nothing: the file system has no such request."""
        return frozenset(paths)

    def tidy(self, folder: str) -> None:
        """Removes the folder and those below it, as far as they are empty."""
        above, name = os.path.split(local_path(folder))
        with suppress(FileNotFoundError), opened_folder(above, self.root) as descriptor:
            for _, names, _, place in os.fwalk(name, topdown=False, dir_fd=descriptor):
                for each in names:
                    _remove_empty(each, place)
            _remove_empty(name, descriptor)


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
        with _permitted(prefix):
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
        with _permitted(path):
            info = system.get_file_info(place)
        return _of_info(path, info) if info.type is FileType.File else None

    def now_ms(self, folder: str) -> int:
        """Returns the store's time, from an object that is written there and removed."""
        # No other object has this name, so no request looks for one.
        return _probe(self, folder, self._write)

    def read(self, path: str, most_bytes: int | None = None) -> bytes:
        """Returns the whole file, or this much of its beginning. Raises FileNotFoundError."""
        system, place = self._resolve(path)
        with _permitted(path), system.open_input_file(place) as stream:
            return bytes(read_whole(stream, path, length=most_bytes))

    def read_lines(self, path: str) -> Iterator[bytes]:
        """Yields the lines of the file. Raises FileNotFoundError."""
        system, place = self._resolve(path)
        partial_line = b""
        with _permitted(path), system.open_input_file(place) as stream:
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
        with _permitted(path):
            _make_parent(system, place)
            with system.open_output_stream(place) as out:
                for line in lines:
                    out.write(line)

    def move(self, source: str, target: str) -> None:
        """Moves a file within its store. Raises FileExistsError, FileNotFoundError, ArchivedFileError."""
        (system, old), (_, new) = self._resolve(source), self._resolve(target)
        with _permitted(source):
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
        with _permitted(path), suppress(FileNotFoundError):
            system.delete_file(place)

    def delete_bulk(self, paths: Sequence[str]) -> frozenset[str]:
        """Deletes nothing: Arrow has no such request."""
        return frozenset(paths)

    def tidy(self, folder: str) -> None:
        """Removes the folder and those below it if they hold no file. Arrow creates an object for every
        folder whose last file it removes."""
        system, place = self._resolve(folder.rstrip("/"))
        with _permitted(folder):
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
    return PyFileSystem(_FsspecHandler(system)), system._strip_protocol(location)


class _FsspecHandler(FSSpecHandler):  # type: ignore[misc]
    """A file system of fsspec, for Arrow. That of Azure has the time of a file under another name than Arrow reads, and
    keeps listings."""

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        self.fs.invalidate_cache()
        found: list[FileInfo] = super().get_file_info(paths)
        return found

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        self.fs.invalidate_cache()
        found: list[FileInfo] = super().get_file_info_selector(selector)
        return found

    @staticmethod
    def _create_file_info(path: str, info: Mapping[str, Any]) -> FileInfo:
        time = info.get("mtime") or info.get("last_modified") or info.get("LastModified")
        return FSSpecHandler._create_file_info(path, {**info, "mtime": time})


def _probe(store: Store, folder: str, write: Callable[[str, Iterable[bytes]], None]) -> int:
    path = f"{folder.rstrip('/')}/.iceberg-maint-{uuid.uuid4()}"
    try:
        write(path, [b"clock\n"])
        stored = store.stat(path)
    except BaseException:
        # A failed removal must not hide the first error, least of all an interrupt.
        with suppress(Exception):
            store.delete(path)
        raise
    store.delete(path)
    if stored is None or stored.modified_ms is None:
        raise RefusedError(
            "ICM-125",
            f"a file written to {folder} does not appear there, or has no modification time.",
            "grant the credentials permission to list the folder. The ages of files come from the store.",
        )
    return stored.modified_ms


@contextmanager
def _permitted(location: str) -> Iterator[None]:
    """Turns access denied into a refusal, and a store that does not serve now into ICM-133 or ICM-176."""
    try:
        yield
    except PermissionError as error:
        raise denied(location, error) from error
    except OSError as error:
        # Arrow returns the store's answer as text.
        if isinstance(error, (FileNotFoundError, FileExistsError)):
            raise
        if "ACCESS_DENIED" in str(error):
            raise denied(location, error) from error
        if is_environment(python_causes(error)):
            raise unavailable(location, error) from error
        raise


def denied(location: str, error: Exception) -> RefusedError:
    """Returns the refusal for a location to which the store denies access."""
    return RefusedError(
        "ICM-125",
        f"access to {location} is denied: {str(error).splitlines()[0]}.",
        "grant permission to list, read, write and delete below this location.",
    )


def unavailable(location: str, error: Exception) -> IcebergMaintError:
    """Returns the error for a location whose store cannot be reached, asks to slow down, or fails: ICM-176 if it takes no
    writes, else ICM-133."""
    line = " ".join(str(error).split())
    if (fix := file_system_fix(line)) is not None:
        return IcebergMaintError("ICM-176", f"{location}: {line}.", f"{fix}.")
    return IcebergMaintError(
        "ICM-133",
        f"the store of {location} does not serve now: {line}.",
        "run again later; if it stays so, check the store's address (s3.endpoint), its region and its limits of "
        "requests.",
    )


@contextmanager
def _entries(folder: str, root: str) -> Iterator[Iterable[os.DirEntry[str]]]:
    with ExitStack() as stack:
        try:
            descriptor = stack.enter_context(opened_folder(folder, root))
        except FileNotFoundError:
            yield ()
            return
        yield stack.enter_context(os.scandir(descriptor))


def _exists(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _remove_empty(name: str, folder: int) -> None:
    with suppress(OSError):  # not empty
        os.rmdir(name, dir_fd=folder)


def local_path(location: str) -> str:
    """Returns the path of a location: `file:/a`, `file:///a` and `/a` are one path."""
    path = location.removeprefix("file:").rstrip("/")
    return path.removeprefix("//")


def _stored(path: str, status: os.stat_result) -> StoredFile:
    return StoredFile(path, status.st_size, status.st_mtime_ns // _NANOSECONDS)


def _of_info(path: str, info: FileInfo) -> StoredFile:
    time_ns = info.mtime_ns
    return StoredFile(path, info.size, None if time_ns is None else time_ns // _NANOSECONDS)
