"""Writers that take data files out and register the same paths again, and main rolled back to an older snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from iceberg_maint_tests.program.drawn import Drawn
from iceberg_maint_tests.support.spark.equality.model import ModelRow
from iceberg_maint_tests.support.spark.equality.reference import TAG, Delete

_MOST_SHELVED = 6


@dataclass
class ReusedPaths(Drawn):
    """`shelf` are Java data files that were taken out and may be registered again, by path."""

    shelf: dict[str, Any] = field(default_factory=dict)

    def register_again(self, preferred: Collection[str] = ()) -> None:
        """Takes files out and registers the same paths: in one commit, or in two with or without deletes between."""
        files = self._free_files(preferred)
        if not files:
            return
        way = self.rng.choice(["one commit", "nothing", "key", "key", "position"])
        if way == "position" and self.version != 2:
            way = "key"
        shown = {path: sorted(self.twin.tags_in(path)) for path in files}
        self.trail.append(f"register again {shown}, between: {way}")
        if way == "one commit":
            overwrite = self.twin.table.newOverwrite()
            for file in files.values():
                overwrite.deleteFile(file).addFile(file)
            overwrite.commit()
            self._forget_rows(files)
        else:
            self._remove(files)
            self._delete_between(way, files)
            self._append(files)
        self.twin.learn_rows(files)

    def take_out(self) -> None:
        """Takes files out; `put_back` registers them some steps later."""
        files = self._free_files(())
        if files and len(self.shelf) < _MOST_SHELVED:
            self.trail.append(f"take out {sorted(files)}")
            self._remove(files)
            self.shelf |= files

    def put_back(self) -> None:
        """Registers the shelved files that are still on storage and have no row that is live elsewhere."""
        live = self._tags_by_file()
        there = frozenset(tag for tags in live.values() for tag in tags)
        files = {
            path: file
            for path, file in self.shelf.items()
            if path not in live and self.twin.is_stored(path) and there.isdisjoint(self.twin.tags_in(path))
        }
        self.shelf.clear()
        if files:
            self.trail.append(f"put back {sorted(files)}")
            self._append(files)
            self.twin.learn_rows(files)

    def roll_back(self) -> None:
        """Main goes back to one of its older snapshots."""
        older = [i for i in self.twin.ancestors()[1:] if i in self.twin.history]
        if older:
            target = self.rng.choice(older[:4])
            self.trail.append(f"roll back to {target}")
            self.twin.roll_back(target)

    def _free_files(self, preferred: Collection[str]) -> dict[str, Any]:
        """Up to three live files whose rows are in no other live file, the preferred ones first."""
        live = self._tags_by_file()
        times = Counter(tag for tags in live.values() for tag in tags)
        free = [path for path in sorted(live) if all(times[tag] == 1 for tag in live[path])]
        among = [path for path in free if path in preferred] or free
        chosen = self.rng.sample(among, min(len(among), self.rng.randint(1, 3)))
        files = self.twin.live_files()
        return {path: files[path] for path in chosen}

    def _tags_by_file(self) -> dict[str, frozenset[int]]:
        return {path: self.twin.tags_in(path) for path in self.twin.live_files()}

    def _remove(self, files: dict[str, Any]) -> None:
        delete = self.twin.table.newDelete()
        for file in files.values():
            delete.deleteFile(file)
        delete.commit()
        self._removed_rows = self._forget_rows(files)

    def _append(self, files: dict[str, Any]) -> None:
        append = self.twin.table.newAppend()
        for file in files.values():
            append.appendFile(file)
        append.commit()

    def _forget_rows(self, files: Collection[str]) -> list[ModelRow]:
        """The model's rows of these files, which it has no more."""
        tags = {tag for path in files for tag in self.twin.tags_in(path)}
        tag_id = self.twin.field_id(TAG)
        gone = [row for row in self.twin.model.rows if row.values[tag_id] in tags]
        self.twin.model.remove(tag_id, tags)
        return gone

    def _delete_between(self, way: str, files: dict[str, Any]) -> None:
        """Deletes that reach the files as they were, and not as they are registered."""
        table = self.twin.table
        if way == "key" and self._removed_rows:
            row, columns = self.rng.choice(self._removed_rows), self._key_columns()
            key = self._key_of(self.twin.model, row, columns)
            self.twin.commit(Delete([key], row.scope.spec_id, row.scope.partition))
            self.trail.append(f"  {key} at {row.scope}")
        if way == "position":
            path, file = self.rng.choice(sorted(files.items()))
            scope = self.twin.scope_of(file)
            delete = self.twin.writers.position_deletes(
                table, {path: [0]}, table.specs().get(scope.spec_id), scope.partition
            )
            table.newRowDelta().addDeletes(delete).commit()
