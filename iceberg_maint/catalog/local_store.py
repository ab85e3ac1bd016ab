"""The local file system: as a store, and as PyIceberg's FileIO. Folders are opened without following symbolic links below a
root.

A link in the place of a folder would lead what is created, moved or deleted out of the table's location. Each folder is
opened by the descriptor of the one above (`O_NOFOLLOW`), so that no link can take its place before the call.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile

from iceberg_maint.catalog.store_service import NANOSECONDS_PER_MS, coded_errors, denied, store_time_ms
from iceberg_maint.core.removal.orphan_rules import TRASH
from iceberg_maint.errors import RefusedError
from iceberg_maint.machine.files import PRIVATE_FILE, PRIVATE_FOLDER
from iceberg_maint.ports.storage import StoredFile

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_BELOW = _FOLDER | os.O_NOFOLLOW


@contextmanager
def opened_folder(path: str, root: str, *, make: bool = False) -> Iterator[int]:
    """Yields a descriptor of the folder. With `make`, missing folders below the root are created, durably; those of the
    trash for this user only.

    `root` is followed if it is a link: an operator may have moved a warehouse. Raises FileNotFoundError, and RefusedError
    ICM-112 for a link.
    """
    top = root_of(path, root)
    try:
        descriptor = os.open(top, _FOLDER)
    except FileNotFoundError:
        if not make:
            raise
        _make(Path(top))
        descriptor = os.open(top, _FOLDER)
    mode = 0o777
    try:
        for name in filter(None, path[len(top) :].split("/")):
            if name == TRASH:
                mode = PRIVATE_FOLDER
            above, descriptor = descriptor, _below(descriptor, name, path, mode if make else None)
            os.close(above)
        yield descriptor
    finally:
        os.close(descriptor)


def root_of(path: str, root: str) -> str:
    """Returns the folder of the path below which no link is followed: the root, for a path outside the root the folder
    that holds the trash, or the path itself."""
    if root and (path == root or path.startswith(f"{root}/")):
        return root
    before, separator, _ = f"{path}/".partition(f"/{TRASH}/")
    return (before or "/") if separator else path


def _below(above: int, name: str, path: str, mode: int | None) -> int:
    try:
        return os.open(name, _BELOW, dir_fd=above)
    except FileNotFoundError:
        if mode is None:
            raise
        with suppress(FileExistsError):
            os.mkdir(name, mode, dir_fd=above)
        os.fsync(above)
        return os.open(name, _BELOW, dir_fd=above)
    except OSError as why:
        if not stat.S_ISLNK(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
            raise
        raise RefusedError(
            "ICM-112",
            f"{path} leads through the symbolic link '{name}', perhaps out of the table's location.",
            "replace the link by a folder.",
        ) from why


def _make(folder: Path) -> None:
    """Creates folders and makes each entry durable."""
    if folder.exists():
        return
    _make(folder.parent)
    folder.mkdir(exist_ok=True)
    descriptor = os.open(folder.parent, _FOLDER)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_local(location: str) -> bool:
    """Whether the location is on the local file system."""
    return location.startswith(("/", "file:"))


class LocalFileIO(FileIO):
    """Opens local files to read. It asks `LiteralFileIO` for the rest: to import that one costs 0.5 s of CPU, more than half
    of a command that reads one table."""

    @cached_property
    def _other(self) -> FileIO:
        from iceberg_maint.catalog.arrow_store import LiteralFileIO

        return LiteralFileIO(self.properties)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what copies and pickles look for
            raise AttributeError(name)
        return getattr(self._other, name)

    def new_input(self, location: str) -> InputFile:
        """Returns the file at the location."""
        return _LocalInput(location) if is_local(location) else self._other.new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """Returns the place of a new file."""
        return self._other.new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Deletes the file."""
        self._other.delete(location)


class _LocalInput(InputFile):
    def __len__(self) -> int:
        return Path(local_path(self.location)).stat().st_size

    def exists(self) -> bool:
        return Path(local_path(self.location)).exists()

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002 - each local file is seekable
        return cast("InputStream", Path(local_path(self.location)).open("rb"))


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
            with coded_errors(prefix), _entries(path + folder, root) as entries:
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
        return store_time_ms(self, folder, self.create)

    def read(self, path: str, most_bytes: int | None = None) -> bytes:
        """Returns the whole file, or this much of its beginning. Raises FileNotFoundError."""
        with coded_errors(path), Path(local_path(path)).open("rb") as file:
            return file.read(most_bytes)

    def read_lines(self, path: str) -> Iterator[bytes]:
        """Yields the lines of the file. Raises FileNotFoundError."""
        with coded_errors(path), Path(local_path(path)).open("rb") as lines:
            yield from lines

    def create(self, path: str, lines: Iterable[bytes]) -> None:
        """Writes a new file. The file and the entries of its folders are durable when this returns."""
        target = Path(local_path(path))
        with coded_errors(path), opened_folder(str(target.parent), self.root, make=True) as folder:
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
    return StoredFile(path, status.st_size, status.st_mtime_ns // NANOSECONDS_PER_MS)
