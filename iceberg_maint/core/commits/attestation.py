"""Judges from metadata alone whether a commit that claims to change no row kept every row.

The live entries of the manifests that only one of the two snapshots lists are compared. Manifests that both list are
not opened, but for delete manifests and for data manifests whose files a changed delete may reach.

Metadata proves a commit that only regroups entries, one that drops deletes that reach no live file, and one whose
changed files have no live row. It refutes a commit whose counts, sequence numbers or kept entries contradict its claim.
Of any other commit only the files can say which rows it kept. `hazards` are the facts that make a change of rows likely:
they refute nothing, because a dropped delete may match no row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from iceberg_maint.core.commits.change import (
    ROW_IDS_SINCE,
    Entry,
    Identity,
    LiveEntry,
    Rule,
    Violation,
    scope_of,
)
from iceberg_maint.core.commits.delete_scope import DeleteIndex
from iceberg_maint.core.commits.live_rows import Live, RowCounts
from iceberg_maint.core.commits.manifest_rules import digest_entries, planned_entries
from iceberg_maint.core.model.table_state import FileKind, Manifest

ReadEntries = Callable[[Manifest], Sequence[LiveEntry]]
"""Reads the live entries of a manifest, with inherited numbers."""

_DELETE_FILE_PATH = 2147483546
"""Field id of `file_path` in position delete files (spec: Reserved Field IDs)."""
_LOWER, _UPPER = 4, 5
"""Places of the bounds among the statistics of a `LiveEntry`."""
_EXACT_BOUNDS = frozenset({"int", "long", "date"})
"""Types whose bounds every writer states exactly."""


class Judgement(StrEnum):
    """PROVED: every row is kept. REFUTED: some row is not. OPEN: only the files can say."""

    PROVED = "proved"
    REFUTED = "refuted"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two snapshots: its manifests and its sequence number."""

    manifests: Sequence[Manifest]
    sequence_number: int


@dataclass(frozen=True, slots=True)
class MetadataVerdict:
    """What metadata says of a commit. `facts` refute it; `hazards` make a change of rows likely. `summary` is one clause
    for people. `file_bytes` is the size of the files that a proof from files reads."""

    judgement: Judgement
    summary: str
    facts: tuple[Violation, ...] = ()
    hazards: tuple[Violation, ...] = ()
    file_bytes: int = 0


def judge_metadata(
    before: Side,
    after: Side,
    unpartitioned: frozenset[int],
    types: Mapping[int, str],
    read: ReadEntries,
) -> MetadataVerdict:
    """Judges the commit between two snapshots. `unpartitioned` are the specs without fields, `types` the types of columns
    by field id. Raises the errors of `read`."""
    entries = _regrouped(before, after, read)
    if entries is not None:
        summary = f"manifests were regrouped; their {entries} live entries are the same"
        return MetadataVerdict(Judgement.PROVED, summary)
    return _Comparison(before, after, unpartitioned, read).verdict(types)


def _regrouped(before: Side, after: Side, read: ReadEntries) -> int | None:
    """The number of live entries in the manifests that only one side lists, if both sides have equal ones. Compares sums
    of hashes, so that the entries of one manifest at a time are in memory. None if an entry may differ."""
    old, now = {m.path: m for m in before.manifests}, {m.path: m for m in after.manifests}
    gone, come = ([m for p, m in of.items() if other.get(p) != m] for of, other in ((old, now), (now, old)))
    classes = {(m.spec_id, m.is_deletes) for m in (*gone, *come)}
    total = 0
    for of_class in classes:
        was, is_ = ([m for m in of if (m.spec_id, m.is_deletes) == of_class] for of in (gone, come))
        if _listed_rows(was) != _listed_rows(is_):
            return None
        planned = planned_entries((e for m in was for e in read(m)), ROW_IDS_SINCE)
        if planned.digest != digest_entries((e for m in is_ for e in read(m)), planned.without_row_ids):
            return None
        total += planned.digest.entries
    return None if any(path in now for path in old if now.get(path, old[path]) != old[path]) else total


def _listed_rows(manifests: Iterable[Manifest]) -> tuple[int, int]:
    """Live files and rows by the manifest list."""
    counts = [
        (
            (m.added_files or 0) + (m.existing_files or 0),
            (m.added_rows or 0) + (m.existing_rows or 0),
        )
        for m in manifests
    ]
    return sum(f for f, _ in counts), sum(r for _, r in counts)


class _Comparison:
    """Both snapshots, with the entries that differ and the deletes of each."""

    def __init__(self, before: Side, after: Side, unpartitioned: frozenset[int], read: ReadEntries) -> None:
        self.before, self.after, self._unpartitioned = before, after, unpartitioned
        self._read_entries, self._known = read, dict[str, list[Live]]()
        old, now = {m.path: m for m in before.manifests}, {m.path: m for m in after.manifests}
        self.relisted = sorted(p for p in old.keys() & now.keys() if old[p] != now[p])
        self._shared = [m for p, m in old.items() if now.get(p) == m]
        was = _by_identity(self._entries(m for p, m in old.items() if now.get(p) != m))
        is_ = _by_identity(self._entries(m for p, m in now.items() if old.get(p) != m))
        self.kept = [(was[i], is_[i]) for i in was.keys() & is_.keys()]
        self.removed = [live for i, of_one in was.items() for live in of_one[len(is_.get(i, ())) :]]
        self.added = [live for i, of_one in is_.items() for live in of_one[len(was.get(i, ())) :]]

    def verdict(self, types: Mapping[int, str]) -> MetadataVerdict:
        if not (self.removed or self.added):
            facts = tuple(self._kept_entries())
            entries = sum(len(b) for b, _ in self.kept)
            summary = f"manifests were regrouped; their {entries} live entries are the same"
            return _verdict(facts, Judgement.PROVED, summary)
        removed, added = _data(self.removed), _data(self.added)
        reached = self._reached_files()
        rows = RowCounts(self._deletes(self.before), self._deletes(self.after), self._unpartitioned)
        facts = (
            *self._kept_entries(),
            *self._numbers(),
            *self._vectors(),
            *rows.facts(removed, added, reached),
        )
        summary = (
            f"{len(removed)} data files and {len(self.removed) - len(removed)} delete files removed, "
            f"{len(added)} and {len(self.added) - len(added)} added"
        )
        if not (removed or added or reached):
            return _verdict(facts, Judgement.PROVED, f"{summary}; no delete among them reaches a live file")
        if not reached and rows.most(removed, added) == 0:
            return _verdict(facts, Judgement.PROVED, f"{summary}; no row of them is live")
        hazards = (
            *self._dropped(reached, added),
            *rows.moved(removed, added),
            *(_bounds(removed, added, types) if rows.are_whole(removed, added) else ()),
        )
        size = sum(live.entry.size_bytes for live in (*self.removed, *self.added))
        # Both sides read a kept file whose deletes differ.
        size += 2 * sum(live.entry.size_bytes for live in reached)
        return _verdict(facts, Judgement.OPEN, summary, hazards, size)

    def _entries(self, manifests: Iterable[Manifest]) -> Iterator[Live]:
        for manifest in manifests:
            if manifest.path not in self._known:
                self._known[manifest.path] = list(self._read(manifest))
            yield from self._known[manifest.path]

    def _read(self, manifest: Manifest) -> Iterator[Live]:
        for entry in self._read_entries(manifest):
            yield Live(manifest.spec_id, entry, self._gate_entry(manifest.spec_id, entry))

    def _gate_entry(self, spec_id: int, entry: LiveEntry) -> Entry:
        return Entry(
            entry.path,
            entry.kind,
            scope_of(spec_id, entry.partition, self._unpartitioned),
            entry.data_sequence_number,
            entry.record_count,
            _marked_file(entry),
            entry.content_offset,
            entry.size_bytes,
            entry.first_row_id,
        )

    def _deletes(self, side: Side) -> list[Entry]:
        return [live.gate for live in self._entries(m for m in side.manifests if m.is_deletes)]

    def _reached_files(self) -> list[Live]:
        """The kept data files that a removed or an added delete may reach."""
        gone = {live.entry.path for live in _data(self.removed)}
        changed = [
            live.gate
            for live in (*self.removed, *self.added)
            if live.entry.kind is not FileKind.DATA and live.gate.referenced_data_file not in gone
        ]
        if not changed:
            return []
        index = DeleteIndex(changed, self._unpartitioned)
        # Not kept in memory: these manifests may be all of a large table.
        shared = (live for m in self._shared if index.may_match(m) for live in self._read(m))
        kept = [of_one[0] for _, of_one in self.kept if of_one[0].entry.kind is FileKind.DATA]
        return [live for live in (*shared, *kept) if index.find(live.gate) is not None]

    def _kept_entries(self) -> Iterator[Violation]:
        """Yields what the commit changed of a manifest or a file that it kept, and files that are live more often."""
        for path in self.relisted:
            yield Violation(Rule.KEPT_FILES, f"manifest {path} is listed with other facts than before")
        for was, is_ in self.kept:
            if len(is_) > len(was):
                yield Violation(
                    Rule.KEPT_FILES, f"{is_[0].entry.path} is live {len(is_)} times, was {len(was)}"
                )
            elif difference := _difference(was[0], is_[0]):
                yield Violation(Rule.KEPT_FILES, f"{is_[0].entry.path} is kept with another {difference}")
        for identity, of_one in _by_identity(self.added).items():
            if len(of_one) > 1:
                yield Violation(Rule.KEPT_FILES, f"{identity[0]} is added {len(of_one)} times")

    def _numbers(self) -> Iterator[Violation]:
        """A number of the future keeps later deletes from reaching the file's rows."""
        for live in self.added:
            number = live.entry.data_sequence_number
            if number > self.after.sequence_number:
                yield Violation(
                    Rule.SEQUENCE_NUMBER,
                    f"{live.entry.path} has data sequence number {number}, the commit has {self.after.sequence_number}; "
                    "no delete reaches its rows until the table has assigned that number",
                )

    def _vectors(self) -> Iterator[Violation]:
        added = {d.gate.referenced_data_file for d in self.added if d.entry.kind is FileKind.DELETION_VECTOR}
        if not added:
            return
        counts: dict[str | None, int] = defaultdict(int)
        for delete in self._deletes(self.after):
            counts[delete.referenced_data_file] += delete.kind is FileKind.DELETION_VECTOR
        for path in sorted(p for p in added if p is not None and counts[p] > 1):
            yield Violation(Rule.SECOND_VECTOR, f"{path} has {counts[path]} deletion vectors")

    def _dropped(self, reached: Sequence[Live], added: Sequence[Live]) -> Iterator[Violation]:
        """Deletes that the commit removed and that would still reach a live file."""
        removed = [d.gate for d in self.removed if d.entry.kind is not FileKind.DATA]
        index = DeleteIndex(removed, self._unpartitioned)
        hits = [(delete, f) for f in (*added, *reached) if (delete := index.find(f.gate)) is not None]
        if hits:
            delete, file = hits[0]
            more = f" and {len(hits) - 1} more data files" if len(hits) > 1 else ""
            yield Violation(
                Rule.DROPPED_DELETE,
                f"delete file {delete.path} (sequence number {delete.data_sequence_number}) was removed and would reach "
                f"{file.entry.path} ({file.entry.data_sequence_number}){more}",
            )


def _verdict(
    facts: Sequence[Violation],
    otherwise: Judgement,
    summary: str,
    hazards: Sequence[Violation] = (),
    file_bytes: int = 0,
) -> MetadataVerdict:
    judgement = Judgement.REFUTED if facts else otherwise
    return MetadataVerdict(judgement, summary, tuple(facts), tuple(hazards), file_bytes)


def _by_identity(entries: Iterable[Live]) -> dict[Identity, list[Live]]:
    by_identity: dict[Identity, list[Live]] = {}
    for live in entries:
        by_identity.setdefault(live.identity, []).append(live)
    return by_identity


def _data(entries: Iterable[Live]) -> list[Live]:
    return [live for live in entries if live.entry.kind is FileKind.DATA]


def _marked_file(entry: LiveEntry) -> str | None:
    """The only data file whose rows a position delete file marks. Spark states it by bounds alone."""
    if entry.referenced_data_file is not None or entry.kind is not FileKind.POSITION_DELETES:
        return entry.referenced_data_file
    first, last = (_bound(entry, place).get(_DELETE_FILE_PATH) for place in (_LOWER, _UPPER))
    if first is None or first != last:
        return None
    try:
        return first.decode()
    except UnicodeDecodeError:
        return None


def _bound(entry: LiveEntry, place: int) -> dict[int, bytes]:
    return {field_id: value for field_id, value in _pairs(entry, place) if isinstance(value, bytes)}


def _pairs(entry: LiveEntry, place: int) -> tuple[tuple[int, int | bytes], ...]:
    return entry.statistics[place] if len(entry.statistics) > place else ()


_KEPT_FACTS = (
    "data_sequence_number",
    "partition",
    "record_count",
    "size_bytes",
    "kind",
    "file_format",
    "referenced_data_file",
    "equality_ids",
    "content_size_bytes",
    "key_metadata",
)
"""The fields that decide which rows readers see in a file."""
_KEPT_STATISTICS = {
    1: "count of values",
    2: "count of NULLs",
    3: "count of NaNs",
    _LOWER: "lower bound",
    _UPPER: "upper bound",
}
"""Statistics of a `LiveEntry` by which readers leave a file out, by their places."""


def _difference(was: Live, is_: Live) -> str | None:
    """The first fact of a kept file that differs, with both values. Rows without ids get them in format v3, and a
    writer may omit statistics. It invents none: the rows of the file are as they were."""
    if was.spec_id != is_.spec_id:
        return f"spec: {is_.spec_id}, was {was.spec_id}"
    for name in _KEPT_FACTS:
        old, new = getattr(was.entry, name), getattr(is_.entry, name)
        if old != new:
            return f"{name}: {new!r}, was {old!r}"
    old_id, new_id = was.entry.first_row_id, is_.entry.first_row_id
    if old_id is not None and old_id != new_id:
        return f"first_row_id: {new_id}, was {old_id}"
    if is_.entry.split_offsets not in ((), was.entry.split_offsets):
        return f"split_offsets: {is_.entry.split_offsets}, was {was.entry.split_offsets}"
    for place, name in _KEPT_STATISTICS.items():
        before, after = (dict(_pairs(live.entry, place)) for live in (was, is_))
        for field_id, value in sorted(after.items()):
            if value != before.get(field_id):
                return f"{name} of column {field_id}: {value!r}, was {before.get(field_id)!r}"
    return None


def _bounds(removed: Sequence[Live], added: Sequence[Live], types: Mapping[int, str]) -> Iterator[Violation]:
    """Yields a column whose lowest or highest value differs, if every file states it. Deletes change bounds, so none may
    reach the files. A stated bound may be wrong, so this refutes nothing."""
    if not removed or not added:
        return
    for place, pick in ((_LOWER, min), (_UPPER, max)):
        sides = [[_bound(f.entry, place) for f in files] for files in (removed, added)]
        stated = set.intersection(*(set(b) for side in sides for b in side))
        for field_id in sorted(i for i in stated if types.get(i) in _EXACT_BOUNDS):
            was, is_ = (pick(_integer(b[field_id]) for b in side) for side in sides)
            if was != is_:
                end = "lowest" if place == _LOWER else "highest"
                yield Violation(
                    Rule.COLUMN_BOUNDS, f"the {end} value of column {field_id} is stated as {is_}, was {was}"
                )
                return


def _integer(bound: bytes) -> int:
    return int.from_bytes(bound, "little", signed=True)
