"""PyIceberg's FileIO for a lake on local disks. It reads a file as it is, and asks `LiteralFileIO` for the rest: to import that
one costs 0.5 s of CPU, more than half of a command that reads one table."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, cast

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile

from iceberg_maint.catalog.file_store import local_path


def is_local(location: str) -> bool:
    """Whether the location is on the local file system."""
    return location.startswith(("/", "file:"))


class LocalFileIO(FileIO):
    """Opens local files to read. Everything else is that of `LiteralFileIO`."""

    @cached_property
    def _other(self) -> FileIO:
        from iceberg_maint.catalog.literal_file_io import LiteralFileIO

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
