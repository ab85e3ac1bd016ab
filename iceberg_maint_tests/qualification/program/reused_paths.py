"""Writers that remove data files and register the same paths again, and rollbacks of main to an older snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from iceberg_maint_tests.qualification.program.drawn import Drawn
from iceberg_maint_tests.support.spark.equality.model import ModelRow
from iceberg_maint_tests.support.spark.equality.reference import TAG, Delete

_MOST_SHELVED = 6


@dataclass
class ReusedPaths(Drawn):
    """`shelf`: Java data files by path that were removed and may be registered again."""

    shelf: dict[str, Any] = field(default_factory=dict)
    has_registered: bool = False
    """Whether a data file was registered again, so that position deletes can be older than the file that they name."""

    def register_again(self, preferred: Collection[str] = ()) -> None:
        """Removes files and registers the same paths: in one commit, or in two with or without deletes between."""
        files = self._free_files(preferred)
        if not files:
            return
        ways = {
            1: ["one commit", "nothing"],
            2: ["one commit", "nothing", "key", "key", "position", "position"],
            3: ["one commit", "nothing", "key", "key"],
        }
        way = self.rng.choice(ways[self.version])
        shown = {path: sorted(self.twin.tags_in(path)) for path in files}
        self.trail.append(f"register again {shown}, between: {way}")
        if way == "one commit":
            overwrite = self.twin.table.newOverwrite()
            for file in files.values():
                overwrite.deleteFile(file).addFile(file)
            overwrite.commit()
            self._forget_rows(files)
            self._learn_rows(files)
        else:
            removed = self._remove(files)
            if way == "key" and removed:
                self._delete_key_of(removed)
            elif way == "position":
                self._delete_position_in(files)
            self._append(files)
        self.counts[f"registered again after {way}"] += 1

    def take_out(self) -> None:
        """Removes files. `put_back` registers them some steps later."""
        files = self._free_files(())
        if files and len(self.shelf) < _MOST_SHELVED:
            self.trail.append(f"take out {sorted(files)}")
            self._remove(files)
            self.shelf |= files

    def put_back(self) -> None:
        """Registers the shelved files that are still on storage and have no row that is live in another file, or in one
        that is registered with them: a rollback brings a file back, and a rewrite of it may be shelved as well."""
        live = self._tags_by_file()
        there = {tag for tags in live.values() for tag in tags}
        files = {}
        for path, file in self.shelf.items():
            if path not in live and self.twin.is_stored(path) and there.isdisjoint(self.twin.tags_in(path)):
                files[path] = file
                there |= self.twin.tags_in(path)
        self.shelf.clear()
        if files:
            self.trail.append(f"put back {sorted(files)}")
            self._append(files)

    def roll_back(self) -> None:
        """Sets main back to one of its older snapshots."""
        older = [i for i in self.twin.ancestors()[1:] if i in self.twin.history]
        if older:
            target = self.rng.choice(older[:4])
            self.trail.append(f"roll back to {target}")
            self.twin.roll_back(target)

    def _free_files(self, preferred: Collection[str]) -> dict[str, Any]:
        """Up to three live files whose rows are in no other live file, the preferred ones first."""
        live = self._tags_by_file()
        times = Counter(tag for tags in live.values() for tag in tags)
        free = [path for path in live if all(times[tag] == 1 for tag in live[path])]
        # Paths have random parts. The tags decide, so that a seed repeats its life.
        free.sort(key=lambda path: sorted(live[path]))
        among = [path for path in free if path in preferred] or free
        chosen = self.rng.sample(among, min(len(among), self.rng.randint(1, 3)))
        files = self.twin.live_files()
        return {path: files[path] for path in chosen}

    def _tags_by_file(self) -> dict[str, frozenset[int]]:
        return {path: self.twin.tags_in(path) for path in self.twin.live_files()}

    # Each of these is a commit, and each snapshot is remembered: an expiry may keep any of them.

    def _remove(self, files: dict[str, Any]) -> list[ModelRow]:
        """Returns the rows that the model had of these files."""
        delete = self.twin.table.newDelete()
        for file in files.values():
            delete.deleteFile(file)
        delete.commit()
        removed = self._forget_rows(files)
        self.twin.remember()
        return removed

    def _append(self, files: dict[str, Any]) -> None:
        append = self.twin.table.newAppend()
        for file in files.values():
            append.appendFile(file)
        append.commit()
        self._learn_rows(files)
        self.twin.remember()

    def _learn_rows(self, files: dict[str, Any]) -> None:
        self.has_registered = True
        self.twin.learn_rows(files)

    def _delete_key_of(self, rows: Sequence[ModelRow]) -> None:
        """An equality delete by a key of one of these rows, which were removed and will be registered again."""
        row, columns = self.rng.choice(rows), self._drawn_keys()
        key = self._key_of(self.twin.model, row, columns)
        removed = self.twin.commit(Delete([key], row.scope.spec_id, row.scope.partition))
        self.twin.remember()
        self.trail.append(f"  {key} at {row.scope} deletes {removed} rows")

    def _delete_position_in(self, files: dict[str, Any]) -> None:
        """A position delete file of one of these files, which were removed and will be registered again. Half of
        them also name a file that does not exist: readers take those for the whole partition."""
        table = self.twin.table
        path, file = self.rng.choice(list(files.items()))
        positions = {path: [0]}
        if self.rng.random() < 0.5:
            positions[f"{path}.gone"] = [0]
        scope = self.twin.scope_of(file)
        spec = table.specs().get(scope.spec_id)
        delete = self.twin.writers.position_deletes(table, positions, spec, scope.partition)
        table.newRowDelta().addDeletes(delete).commit()
        self.twin.remember()

    def _forget_rows(self, files: Collection[str]) -> list[ModelRow]:
        """Removes the rows of these files from the model, and returns them."""
        tags = {tag for path in files for tag in self.twin.tags_in(path)}
        tag_id = self.twin.field_id(TAG)
        removed = [row for row in self.twin.model.rows if row.values[tag_id] in tags]
        self.twin.model.remove(tag_id, tags)
        return removed
