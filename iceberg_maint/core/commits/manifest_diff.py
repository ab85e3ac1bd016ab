"""Reads the difference that a commit makes to a table's live files, from its manifests.

The cost depends on manifests, not on entries. Manifests in the lists both before and after are not
opened. Replaced data manifests are opened only if their replacements do not account for each of their
files and rows. Opened are the manifests that the commit wrote, delete manifests that are younger than the
pinned snapshot or replaced and, if a delete file vanishes, the data manifests with files it could still
apply to.

Manifests added after the pinned snapshot are opened whatever their `min_sequence_number` says: no reader has
compared it with their entries. Those of the pinned snapshot were compared when the batch was planned.

For a delete that the plan drops, these are the manifests added after the pinned snapshot: a manifest
never changes, so the manifests of the pinned snapshot list only files that the plan knew. The smallest of
those are opened as well, up to `SPOT_CHECK_FILES`: in most tables, all of them.

Whether a file of the plan is still the same file is read from the manifests added after the pinned
snapshot and, for delete files, from the delete manifests removed since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from iceberg_maint.core.commits.change import Entry, FileChange, Identity, Scope, TableVersion, scope_of
from iceberg_maint.core.commits.delete_scope import DeleteIndex, dropped_deletes
from iceberg_maint.core.commits.intent import Intent
from iceberg_maint.core.model.table_state import EntryStatus, FileKind, Manifest, ManifestReader

SPOT_CHECK_FILES = 10_000
"""The number of files in manifests that the plan knew and that are opened as a spot check. Reading them
takes less than a tenth of a second."""


def read_file_change(
    intent: Intent,
    base: TableVersion,
    new: TableVersion,
    pinned: Sequence[Manifest] | None,
    read: ManifestReader,
) -> FileChange:
    """Reads the difference between the base and the new version. `pinned` are the manifests of the pinned
    snapshot, None if it has expired.

    Raises the errors of `read`. A manifest that disagrees with its list appears in `altered`.
    """
    unpartitioned = base.unpartitioned_specs | new.unpartitioned_specs
    losing = frozenset(i for v in (base, new) for i, spec in v.specs.items() if spec.loses_values)
    opened = _Opened(read, unpartitioned, losing, new.snapshot_id)
    old, now = {m.path: m for m in base.manifests}, {m.path: m for m in new.manifests}
    for path in old.keys() & now.keys():
        if old[path] != now[path]:
            opened.altered.append(f"manifest {path} is listed with other facts than before")
    removed_manifests = [m for p, m in old.items() if p not in now]
    added_manifests = [m for p, m in now.items() if p not in old]
    removed: list[Entry] = []
    added: list[Entry] = []
    for is_deletes in (False, True):
        kind_difference = opened.difference(
            [m for m in removed_manifests if m.is_deletes is is_deletes],
            [m for m in added_manifests if m.is_deletes is is_deletes],
        )
        removed += kind_difference[0]
        added += kind_difference[1]
    new_deletes = [
        entry
        for manifest in base.manifests
        if manifest.is_deletes and manifest.sequence_number > intent.snapshot_sequence_number
        for entry in opened.contents(manifest).live
        if entry.data_sequence_number > intent.snapshot_sequence_number
    ]
    void = dropped_deletes(removed, added)
    by_plan = DeleteIndex((d for d in void if intent.drops(d)), unpartitioned)
    by_itself = DeleteIndex((d for d in void if not intent.drops(d)), unpartitioned)
    pinned_by_path = {m.path: m for m in pinned or ()}
    survivors = [
        entry
        for manifest in _to_search(new.manifests, pinned_by_path, by_plan, by_itself)
        for entry in opened.contents(manifest).live
    ]
    return FileChange(
        removed=tuple(removed),
        added=tuple(added),
        altered=tuple(opened.altered),
        duplicates=tuple(opened.duplicates),
        new_deletes=tuple(new_deletes),
        survivors=tuple(survivors),
        lost=tuple(_lost(intent, pinned_by_path, old, opened)),
        arrivals=tuple(_arrivals(intent, pinned, base.manifests, opened)),
        departures=tuple(_departures(intent, pinned, base.manifests, opened)),
        outlived=tuple(_outlived(intent, removed, new.manifests, opened)),
        live_before=_live_data_files(base.manifests),
        live_after=_live_data_files(new.manifests),
    )


def _to_search(
    manifests: Sequence[Manifest],
    pinned_by_path: Mapping[str, Manifest],
    by_plan: DeleteIndex,
    by_itself: DeleteIndex,
) -> Iterator[Manifest]:
    """Yields manifests whose data files a dropped delete may still apply to."""
    answered_for: list[tuple[int, Manifest]] = []
    for manifest in manifests:
        checked = pinned_by_path.get(manifest.path) == manifest
        if by_itself.may_match(manifest, checked=checked):
            yield manifest
        elif by_plan.may_match(manifest, checked=checked):
            files = _live_files(manifest)
            if files is None or not checked:
                yield manifest
            else:
                answered_for.append((files, manifest))
    total = 0
    for files, manifest in sorted(answered_for, key=lambda each: each[0]):
        total += files
        if total > SPOT_CHECK_FILES:
            return
        yield manifest


def _lost(
    intent: Intent, pinned_by_path: Mapping[str, Manifest], before: Mapping[str, Manifest], opened: _Opened
) -> list[str]:
    """Returns the data files to mark that are no longer live. A file can be gone only if its manifest is."""
    marked = {d.data_file for d in intent.deletes}
    replaced = (
        [m for p, m in pinned_by_path.items() if p not in before and not m.is_deletes] if marked else []
    )
    missing = {e.path for m in replaced for e in opened.contents(m).live} & marked
    new_manifests = (
        [m for p, m in before.items() if p not in pinned_by_path and not m.is_deletes] if missing else []
    )
    return sorted(missing - {e.path for m in new_manifests for e in opened.contents(m).live})


def _arrivals(
    intent: Intent, pinned: Sequence[Manifest] | None, before: Sequence[Manifest], opened: _Opened
) -> Iterator[Entry]:
    """Yields files of the plan that arrived since. Data files removed by the commit are excluded: they
    appear in its removed files."""
    if pinned is None:
        return
    planned = intent.planned
    needed = {False: bool(intent.examined), True: bool(intent.delete_files)}
    pinned_paths = {m.path for m in pinned}
    for manifest in before:
        if manifest.path not in pinned_paths and needed[manifest.is_deletes]:
            yield from (e for e in opened.contents(manifest).live if e.identity in planned)


def _departures(
    intent: Intent, pinned: Sequence[Manifest] | None, before: Sequence[Manifest], opened: _Opened
) -> list[Identity]:
    planned = {f.identity for f in intent.delete_files}
    if pinned is None or not planned:
        return []
    old, now = {m.path for m in pinned if m.is_deletes}, {m.path for m in before if m.is_deletes}
    departed = {
        e.identity
        for m in pinned
        if m.path in old - now
        for e in opened.contents(m).live
        if e.identity in planned
    }
    arrived = {
        e.identity for m in before if departed and m.path in now - old for e in opened.contents(m).live
    }
    return sorted(departed - arrived, key=lambda i: (i[0], i[1] or 0))


def _outlived(
    intent: Intent, removed: Sequence[Entry], manifests: Sequence[Manifest], opened: _Opened
) -> list[Entry]:
    """Returns the outlived deletes. Manifests are read only if a delete file that the plan knew is not
    removed."""
    before = {
        (d.data_file, path) for d in intent.deletes if d.kind is FileKind.DELETION_VECTOR for path in d.before
    }
    remaining = before - {(e.referenced_data_file, e.path) for e in removed}
    return [
        entry
        for manifest in manifests
        if remaining and manifest.is_deletes
        for entry in opened.contents(manifest).live
        if (entry.referenced_data_file, entry.path) in remaining
    ]


@dataclass(frozen=True, slots=True)
class _Contents:
    """The entries of one manifest: `live` ones, those of them that the commit `added`, and those it
    marked `deleted`."""

    live: list[Entry]
    added: list[Entry]
    deleted: list[Entry]


class _Opened:
    """The manifests opened so far, each once."""

    def __init__(
        self,
        read: ManifestReader,
        unpartitioned: frozenset[int],
        losing: frozenset[int],
        snapshot_id: int,
    ) -> None:
        self.read = read
        self.unpartitioned = unpartitioned
        self.losing = losing
        self.snapshot_id = snapshot_id
        self.known: dict[str, _Contents] = {}
        self.altered: list[str] = []
        self.duplicates: list[Identity] = []

    def difference(
        self, gone: Sequence[Manifest], come: Sequence[Manifest]
    ) -> tuple[list[Entry], list[Entry]]:
        """Returns the entries removed and added by replacing the manifests `gone` by `come`.

        For data files, the entries that the commit deleted and added are the answer if kept,
        removed and replaced entries add up in files and rows to the counts of the list before. Otherwise
        both sides are compared entry by entry. They are always compared for delete files, and for specs
        whose values Iceberg loses in copying.
        """
        written = [self.contents(m) for m in come]
        copied_well = not any(m.is_deletes or m.spec_id in self.losing for m in (*gone, *come))
        if copied_well and _accounted(written) == _live_counts(gone):
            self._note_duplicates(written)
            return [e for c in written for e in c.deleted], [e for c in written for e in c.added]
        before = self._unique(e for m in gone for e in self.contents(m).live)
        after = self._unique(e for c in written for e in c.live)
        for identity in before.keys() & after.keys():
            if not _is_same(before[identity], after[identity]):
                self.altered.append(f"{identity[0]} is kept as {after[identity]}, was {before[identity]}")
        return (
            [e for i, e in before.items() if i not in after],
            [e for i, e in after.items() if i not in before],
        )

    def contents(self, manifest: Manifest) -> _Contents:
        """Returns the entries. Their number by status is compared with the manifest list."""
        if manifest.path in self.known:
            return self.known[manifest.path]
        contents = _Contents([], [], [])
        counts = dict.fromkeys(EntryStatus, 0)
        scopes: dict[tuple[object, ...], Scope] = {}
        own_id, deleted = self.snapshot_id, EntryStatus.DELETED
        next_row_id = None if manifest.is_deletes else manifest.first_row_id
        entries = self.read(manifest.path, manifest.sequence_number, manifest.added_snapshot_id)
        for (
            status,
            snapshot_id,
            number,
            path,
            kind,
            partition,
            rows,
            size,
            referenced,
            offset,
            row_id,
        ) in entries:
            counts[status] += 1
            ours = snapshot_id == own_id
            if row_id is None and next_row_id is not None and status is not deleted:
                row_id, next_row_id = next_row_id, next_row_id + rows
            if status is deleted and not ours:
                continue
            scope = scopes.get(partition)
            if scope is None:
                scope = scope_of(manifest.spec_id, partition, self.unpartitioned)
                if not any(isinstance(v, float) for v in partition):  # 0.0 == -0.0 as a key
                    scopes[partition] = scope
            value = Entry(path, kind, scope, number, rows, referenced, offset, size, row_id)
            if status is deleted:
                contents.deleted.append(value)
                continue
            contents.live.append(value)
            if ours and status is EntryStatus.ADDED:
                contents.added.append(value)
        self._compare_counts(manifest, counts)
        self.known[manifest.path] = contents
        return contents

    def _note_duplicates(self, written: Iterable[_Contents]) -> None:
        entries = [e for c in written for e in (*c.live, *c.deleted)]
        # Distinct paths alone rule out duplicates.
        if len({e.path for e in entries}) < len(entries):
            self._unique(entries)

    def _unique(self, entries: Iterable[Entry]) -> dict[Identity, Entry]:
        unique: dict[Identity, Entry] = {}
        for entry in entries:
            if entry.identity in unique:
                self.duplicates.append(entry.identity)
            unique[entry.identity] = entry
        return unique

    def _compare_counts(self, manifest: Manifest, counts: Mapping[EntryStatus, int]) -> None:
        counts_in_list = {
            EntryStatus.ADDED: manifest.added_files,
            EntryStatus.EXISTING: manifest.existing_files,
            EntryStatus.DELETED: manifest.deleted_files,
        }
        for status, number in counts_in_list.items():
            if number is not None and number != counts[status]:
                self.altered.append(
                    f"manifest {manifest.path} holds {counts[status]} {status.name} entries, "
                    f"its list says {number}"
                )


def _is_same(before: Entry, after: Entry) -> bool:
    """Returns whether a commit kept an entry. Rows without ids get them with the first commit in format v3."""
    if before.first_row_id is None:
        after = after._replace(first_row_id=None)
    return before == after


def _accounted(written: Iterable[_Contents]) -> tuple[int, int]:
    """Returns the files and rows that new manifests keep or mark deleted."""
    files = rows = 0
    for contents in written:
        files += len(contents.live) - len(contents.added) + len(contents.deleted)
        rows += _rows(contents.live) - _rows(contents.added) + _rows(contents.deleted)
    return files, rows


def _rows(entries: Iterable[Entry]) -> int:
    return sum(e.record_count for e in entries)


def _live_counts(manifests: Iterable[Manifest]) -> tuple[int, int] | None:
    """Returns live files and their rows by the manifest list; None if a writer omitted counts."""
    files = rows = 0
    for m in manifests:
        if None in (m.added_files, m.existing_files, m.added_rows, m.existing_rows):
            return None
        files += (m.added_files or 0) + (m.existing_files or 0)
        rows += (m.added_rows or 0) + (m.existing_rows or 0)
    return files, rows


def _live_files(manifest: Manifest) -> int | None:
    if manifest.added_files is None or manifest.existing_files is None:
        return None
    return manifest.added_files + manifest.existing_files


def _live_data_files(manifests: Iterable[Manifest]) -> int | None:
    counts = [_live_files(m) for m in manifests if not m.is_deletes]
    return None if None in counts else sum(n for n in counts if n is not None)
