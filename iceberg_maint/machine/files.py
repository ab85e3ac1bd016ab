"""Files: those that the program keeps for its own user, replaced as a whole, and reads that are whole or fail."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
"""Modes whatever the umask: the files hold names and paths of all tables."""
_MARK_BYTES = 16


def private_folder(folder: Path) -> Path:
    """Creates the folder, and those above it that are missing. Returns it. Raises OSError."""
    try:
        folder.mkdir(PRIVATE_FOLDER, exist_ok=True)
    except FileNotFoundError:
        private_folder(folder.parent)
        folder.mkdir(PRIVATE_FOLDER, exist_ok=True)
    return folder


def private_opener(path: str, flags: int) -> int:
    """Opens a file for `open`. A file that this call creates is private."""
    return os.open(path, flags, PRIVATE_FILE)


def private_database(path: Path) -> Path:
    """Creates the file of a SQLite database, unless it exists, and returns it. Its log and journal get its mode."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, PRIVATE_FILE))
    return path


def replace_file(path: Path, text: str) -> None:
    """Replaces a text file as a whole, or leaves it as it is. Raises OSError."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(unfinished, "w", encoding="utf-8", opener=private_opener) as file:
            file.write(text)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def read_whole(stream: pa.NativeFile, location: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
    """Returns the contents of a file, or a part of them: as much of `length` bytes as the file has. Raises OSError if the
    store answers with less.

    Arrow's S3 client does not compare the length of an answer with the length that it asked for. If a store, or a proxy
    before it, ends an answer early and states the shorter length, Arrow returns a buffer of the length asked for, whose end
    is whatever the memory held before: possibly the end of another file. (A connection that ends before the stated length
    is an error.)
    """
    import numpy as np
    import pyarrow as pa

    size_bytes = max(0, stream.size() - offset)
    wanted = size_bytes if length is None else min(length, size_bytes)
    contents = np.empty(wanted, np.uint8)
    # An answer that is too short leaves the mark at the end.
    mark = os.urandom(min(_MARK_BYTES, wanted))
    contents[wanted - len(mark) :] = np.frombuffer(mark, np.uint8)
    stream.seek(offset)
    count = stream.readinto(contents) if wanted else 0
    if count != wanted or (wanted >= _MARK_BYTES and contents[wanted - len(mark) :].tobytes() == mark):
        # The words of Arrow for a connection that ends early.
        raise OSError(
            f"AWS Error NETWORK_CONNECTION: the store answered with less than {wanted} bytes of {location}"
        )
    return pa.py_buffer(contents)
