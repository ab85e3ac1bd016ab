"""Folders of the local file system, opened without following symbolic links below a root.

A link in the place of a folder would lead what is created, moved or deleted out of the table's location. Each folder is
opened by the descriptor of the one above (`O_NOFOLLOW`), so that no link can take its place before the call.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from iceberg_maint.core.removal.orphan_rules import TRASH
from iceberg_maint.errors import RefusedError
from iceberg_maint.machine.private_files import PRIVATE_FOLDER

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
