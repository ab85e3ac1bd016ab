"""The configuration file under a running Dagster: whether it still says what is loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path


class ConfigurationFile:
    """The file at `path` as it is when this is made, so make it before the file is read.

    A code location reads it once and each run anew: what sensors ask for by the former one, runs
    may have to leave undone by the latter, tick after tick. `load` reads the file and raises what
    is wrong with it.
    """

    def __init__(self, path: Path, load: Callable[[], object]) -> None:
        self._path, self._load = path, load
        self._loaded = self._digest()

    def follow(self, reload: Callable[[], str]) -> list[str]:
        """Asks for a reload when the file says something else by now, unless it cannot be loaded:
        sensors and schedule would be gone with it. Returns what a person should know."""
        if self._digest() == self._loaded:
            return []
        try:
            self._load()
        except Exception as why:  # noqa: BLE001 - told, and looked at again at the next tick
            return [f"the configuration changed; runs fail until this is fixed: {why}"]
        return [reload()]

    def _digest(self) -> str | None:
        try:
            return hashlib.sha256(self._path.read_bytes()).hexdigest()
        except OSError:
            return None
