"""Files and folders that the program keeps for its own user, whatever the umask: they hold names and paths of all tables."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700


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
