"""How many rows of data files are live in two snapshots, as far as the entries of manifests bound the number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from iceberg_maint.core.commits.change import Entry, Identity, LiveEntry, Rule, Scope, Violation
from iceberg_maint.core.commits.delete_scope import DeleteIndex
from iceberg_maint.core.model.table_state import FileKind


class Live(NamedTuple):
    """A live entry with its spec and, of a position delete file, the only data file that it names."""

    spec_id: int
    entry: LiveEntry
    gate: Entry

    @property
    def identity(self) -> Identity:
        return self.gate.identity


class RowCounts:
    """How many rows of data files are live before and after, as far as metadata bounds the number."""

    def __init__(
        self, before: Sequence[Entry], after: Sequence[Entry], unpartitioned: frozenset[int]
    ) -> None:
        self._before, self._after = _Deletes(before, unpartitioned), _Deletes(after, unpartitioned)

    def most(self, removed: Sequence[Live], added: Sequence[Live]) -> int:
        """The most rows that may be live in these files on either side."""
        return max(self._before.rows(removed)[1], self._after.rows(added)[1])

    def are_whole(self, removed: Sequence[Live], added: Sequence[Live]) -> bool:
        """Whether no delete reaches these files."""
        return self._before.rows(removed) == _whole(removed) and self._after.rows(added) == _whole(added)

    def facts(
        self, removed: Sequence[Live], added: Sequence[Live], reached: Sequence[Live]
    ) -> Iterator[Violation]:
        """Yields numbers of live rows that cannot be equal."""
        subject = f"{len(removed)} removed and {len(added)} added data files"
        groups = [(subject, removed, added), *((f.entry.path, [f], [f]) for f in reached)]
        for name, old, new in groups:
            before, after = self._before.rows(old), self._after.rows(new)
            if before[0] > after[1] or after[0] > before[1]:
                verb = "lost" if before[0] > after[1] else "brought back or doubled"
                count = before[0] - after[1] if before[0] > after[1] else after[0] - before[1]
                yield Violation(
                    Rule.ROW_COUNT,
                    f"{_range(before)} rows were live before and {_range(after)} are after it in {name}: "
                    f"at least {count} are {verb}",
                )

    def moved(self, removed: Sequence[Live], added: Sequence[Live]) -> Iterator[Violation]:
        """Yields equality deletes that reach an added file and not all files that its rows may come from."""
        by_scope: dict[Scope, list[Live]] = defaultdict(list)
        for file in removed:
            by_scope[file.gate.scope].append(file)
        for file in added:
            delete = self._after.equality.find(file.gate)
            sources = by_scope.get(file.gate.scope) or removed
            if delete is None or all(self._before.equality.find(s.gate) is not None for s in sources):
                continue
            yield Violation(
                Rule.SCOPE,
                f"equality delete {delete.path} (sequence number {delete.data_sequence_number}) reaches "
                f"{file.entry.path} ({file.entry.data_sequence_number}) and not every file that it replaces",
            )
            return


class _Deletes:
    """The deletes of one snapshot, by the way in which they reach data files."""

    def __init__(self, deletes: Sequence[Entry], unpartitioned: frozenset[int]) -> None:
        self.equality = DeleteIndex(
            (d for d in deletes if d.kind is FileKind.EQUALITY_DELETES), unpartitioned
        )
        positions = [d for d in deletes if d.kind is FileKind.POSITION_DELETES]
        self._shared = DeleteIndex((d for d in positions if d.referenced_data_file is None), unpartitioned)
        self._of_file: dict[str, list[Entry]] = defaultdict(list)
        for delete in deletes:
            if delete.referenced_data_file is not None and delete.kind is not FileKind.EQUALITY_DELETES:
                self._of_file[delete.referenced_data_file].append(delete)

    def rows(self, files: Iterable[Live]) -> tuple[int, int]:
        """The fewest and the most rows of these data files that can be live."""
        fewest = most = 0
        for file in files:
            records, marks = file.entry.record_count, self._marks(file.gate)
            vector = sum(d.record_count for d in marks if d.kind is FileKind.DELETION_VECTOR)
            others = sum(d.record_count for d in marks if d.kind is FileKind.POSITION_DELETES and not vector)
            is_open = self.equality.find(file.gate) is not None
            is_open = is_open or (not vector and self._shared.find(file.gate) is not None)
            most += max(0, records - vector)
            fewest += 0 if is_open else max(0, records - vector - others)
        return fewest, most

    def _marks(self, file: Entry) -> list[Entry]:
        number = file.data_sequence_number
        return [d for d in self._of_file.get(file.path, ()) if number <= d.data_sequence_number]


def _whole(files: Iterable[Live]) -> tuple[int, int]:
    records = sum(f.entry.record_count for f in files)
    return records, records


def _range(rows: tuple[int, int]) -> str:
    return f"{rows[0]:,}" if rows[0] == rows[1] else f"{rows[0]:,} to {rows[1]:,}"
