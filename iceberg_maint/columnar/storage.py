"""Files of a task: the operating system serves the local file system, PyIceberg's FileIO serves others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa


class Storage:
    """Opens files by their locations. `properties` are those of the catalog's FileIO."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = dict(properties)

    def read(self, location: str) -> pa.Buffer:
        """Returns the contents of a file, read once."""
        if (path := local_path(location)) is not None:
            return pa.py_buffer(path.read_bytes())
        with self._file_io.new_input(location).open() as stream:
            return pa.py_buffer(stream.read())

    def read_range(self, location: str, offset: int, length: int) -> bytes:
        """Returns a part of a file."""
        if (path := local_path(location)) is not None:
            with path.open("rb") as local:
                local.seek(offset)
                return local.read(length)
        with self._file_io.new_input(location).open() as stream:
            stream.seek(offset)
            return bytes(stream.read(length))

    def create(self, location: str) -> Any:
        """Returns a stream that writes a new file. On a local file system, a file that exists is an error."""
        if (path := local_path(location)) is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            return path.open("xb")
        return self._file_io.new_output(location).create()

    def size(self, location: str) -> int:
        """Returns the length of a file."""
        if (path := local_path(location)) is not None:
            return path.stat().st_size
        return len(self._file_io.new_input(location))

    def delete(self, location: str) -> None:
        """Deletes a file. A file that does not exist is no error."""
        if (path := local_path(location)) is not None:
            path.unlink(missing_ok=True)
        else:
            self._file_io.delete(location)

    @cached_property
    def _file_io(self) -> Any:
        from pyiceberg.io import load_file_io

        return load_file_io(self._properties)


def local_path(location: str) -> Path | None:
    """Returns the path of a location on a file system of this machine, None for a location elsewhere. A percent sign
    is part of the name, as in Hadoop's paths."""
    if location.startswith("file:"):
        return Path("/" + location.removeprefix("file:").lstrip("/"))
    return Path(location) if location.startswith(os.sep) else None
