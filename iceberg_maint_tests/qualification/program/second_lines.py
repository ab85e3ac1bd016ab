"""Two lines of commits of one table: after a restore of its catalog, or with a second catalog that has the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from iceberg_maint_tests.qualification.program.writing import Writing
from iceberg_maint_tests.support.spark.equality.model import ModelRow


@dataclass(frozen=True, slots=True)
class Version:
    """What a program knows of its table at one metadata file. The rows of `branches` and `history` are by name and by
    snapshot."""

    location: str
    columns: Mapping[str, str]
    format_version: int
    rows: tuple[ModelRow, ...]
    defaults: Mapping[int, Any]
    branches: Mapping[str, tuple[ModelRow, ...]]
    staged: Mapping[int, list[ModelRow]]
    history: Mapping[int, tuple[ModelRow, ...]]
    lineage: Mapping[int, tuple[int | None, int | None]]


@dataclass
class SecondLines(Writing):
    """`backup` is a version that the catalog can be restored to."""

    backup: Version | None = None

    def second_line(self) -> Version | None:
        """Starts a second line of commits. Returns the version that the table's catalog does not point at, None if no
        second line was started."""
        if not self.has_long_log:
            return None
        if self.backup is None or self.rng.random() < 0.4 or not self._is_intact(self.backup):
            return self._commit_elsewhere()
        newest = self.current_version()
        self.trail.append(f"restore the catalog to {self.backup.location}, from {newest.location}")
        self.counts["pointer restored"] += 1
        self._point_at(self.backup)
        return newest

    def back_up(self) -> None:
        """Remembers the current version, unless a backup can still be restored."""
        if self.has_long_log and (self.backup is None or not self._is_intact(self.backup)):
            self.backup = self.current_version()

    def end_second_line(self, other: Version) -> None:
        """An operator keeps one line, and deletes the metadata files of the other one, as the refusal says."""
        if self.rng.random() < 0.5:
            self.trail.append(f"keep the line of {other.location}")
            self._point_at(other)
        else:
            self.trail.append(f"abandon the line of {other.location}")
        own = _paths(self.twin.location(), self.twin.metadata())
        for path in self.keeper.files(self.twin):
            if path.name.endswith(".metadata.json") and path not in own:
                path.unlink()
        self.backup = None

    def current_version(self) -> Version:
        """The table as it is now."""
        twin = self.twin
        twin.inherit()
        return Version(
            twin.location(),
            dict(self.columns),
            self.version,
            tuple(twin.model.rows),
            dict(twin.model.defaults),
            {name: tuple(model.rows) for name, model in twin.branches.items()},
            dict(twin.staged),
            dict(twin.history),
            dict(twin.lineage),
        )

    def _point_at(self, version: Version) -> None:
        self.keeper.point(self.twin, version.location)
        self._know(version)

    def _know(self, version: Version) -> None:
        """The program knows what it did at that version. Tags go on: no row of the other line has the tag of one here."""
        twin = self.twin
        self.columns, self.version = dict(version.columns), version.format_version
        # Removed files may be of a spec that this version does not have.
        self.shelf.clear()
        twin.model.rows[:] = version.rows
        twin.model.defaults = dict(version.defaults)
        twin.branches = {
            name: replace(twin.model, rows=list(rows)) for name, rows in version.branches.items()
        }
        twin.staged, twin.history = dict(version.staged), dict(version.history)
        twin.lineage = dict(version.lineage)

    def _commit_elsewhere(self) -> Version:
        """The table is registered in a second catalog, and writers commit there at least twice. One version that no log
        names can be of a failed commit."""
        ours, own = self.current_version(), self.twin.writers
        self.trail.append(f"register {ours.location} in a second catalog")
        self.counts["second catalog"] += 1
        actions: list[Callable[[], None]] = [self.append]
        if self.version > 1:
            actions += [self.upsert, self.delete, self.several_at_once]
        self.twin.writers = self.keeper.second_catalog.register(self.twin.name, ours.location)
        try:
            for _ in range(self.rng.randint(2, 3)):
                action = self.rng.choice(actions)
                action()
                self._count(action)
            theirs = self.current_version()
        finally:
            self.keeper.second_catalog.forget(self.twin.name)
            self.twin.writers = own
        self.trail.append(f"now at {ours.location} again")
        self._know(ours)
        return theirs

    def _is_intact(self, version: Version) -> bool:
        """Whether all files of the version exist, and at least two commits followed it: see `_commit_elsewhere`."""
        log = [Path(e["metadata-file"].removeprefix("file:")) for e in self.twin.metadata()["metadata-log"]]
        if Path(version.location.removeprefix("file:")) not in log[:-1]:
            return False
        try:
            reached = self.twin.witness.reached(version.location)
        except FileNotFoundError:
            return False
        return all(self.twin.is_stored(path) for path in reached if not path.endswith(".metadata.json"))


def _paths(location: str, metadata: Mapping[str, Any]) -> set[Path]:
    """The metadata files that are the table's own: the pointer's and those of its log."""
    named = [location, *(entry["metadata-file"] for entry in metadata["metadata-log"])]
    return {Path(path.removeprefix("file:")) for path in named}
