"""The configuration file of a running Dagster: detects that it changed after it was loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path


class ConfigurationFile:
    """The file at `path` as of the creation of this object. Create it before the file is read.

    A code location reads the file once; each run reads it again. After a change, sensors could request
    work at every tick that the runs refuse. `load` reads the file and raises its errors.
    """

    def __init__(self, path: Path, load: Callable[[], object]) -> None:
        self._path, self._load = path, load
        self._loaded = self._digest()

    def follow(self, reload: Callable[[], str]) -> list[str]:
        """Requests a reload if the file has changed. Returns messages for a person.

        A file that cannot be loaded causes no reload: the code location would lose its sensors and its
        schedule.
        """
        if self._digest() == self._loaded:
            return []
        try:
            self._load()
        except Exception as why:  # noqa: BLE001 - reported, and read again at the next tick
            return [f"the configuration changed; runs fail until this is fixed: {why}"]
        return [reload()]

    def _digest(self) -> str | None:
        try:
            return hashlib.sha256(self._path.read_bytes()).hexdigest()
        except OSError:
            return None
