"""The difference that a commit makes to a table's live files, read from its manifests.

It costs manifests, not entries. Manifests in the lists before and after are not opened, and the data
manifests that were replaced only if what replaced them does not account for each of their files and
rows. Opened are the manifests the commit wrote, delete manifests younger than the pinned snapshot or
replaced and, when a delete file vanishes, the data manifests it could still apply to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from iceberg_maint.core.change import Entry, FileChange, Identity, Scope, scope_of
from iceberg_maint.core.state import EntryStatus, FileKind, Manifest, ManifestReader


def read_file_change(
    before: Sequence[Manifest],
    after: Sequence[Manifest],
    snapshot_id: int,
    pinned_sequence_number: int,
    unpartitioned: frozenset[int],
    read: ManifestReader,
) -> FileChange:
    """Reads the difference that the new snapshot `snapshot_id` makes. Raises what `read` raises; a
    manifest that does not hold what its list says shows in `altered`."""
    opened = _Opened(read, unpartitioned, snapshot_id)
    old, new = {m.path: m for m in before}, {m.path: m for m in after}
    for path in old.keys() & new.keys():
        if old[path] != new[path]:
            opened.altered.append(f"manifest {path} is listed with other facts than before")
    gone = [m for p, m in old.items() if p not in new]
    come = [m for p, m in new.items() if p not in old]
    removed: list[Entry] = []
    added: list[Entry] = []
    for is_deletes in (False, True):
        one = opened.difference(
            [m for m in gone if m.is_deletes is is_deletes], [m for m in come if m.is_deletes is is_deletes]
        )
        removed += one[0]
        added += one[1]
    new_deletes = [
        entry
        for manifest in before
        if manifest.is_deletes and manifest.sequence_number > pinned_sequence_number
        for entry in opened.contents(manifest).live
        if entry.data_sequence_number > pinned_sequence_number
    ]
    undecided = _undecided(removed)
    survivors = [
        entry
        for manifest in after
        if any(_may_hold_data_of(manifest, delete, unpartitioned) for delete in undecided)
        for entry in opened.contents(manifest).live
    ]
    return FileChange(
        removed=tuple(removed),
        added=tuple(added),
        altered=tuple(opened.altered),
        duplicates=tuple(opened.duplicates),
        new_deletes=tuple(new_deletes),
        survivors=tuple(survivors),
        live_before=_live_data_files(before),
        live_after=_live_data_files(after),
    )


@dataclass(frozen=True, slots=True)
class _Contents:
    """The entries of one manifest: live ones, of these the ones the commit added, and the ones it
    marked deleted."""

    live: list[Entry]
    added: list[Entry]
    deleted: list[Entry]


class _Opened:
    """The manifests opened so far, each once."""

    def __init__(self, read: ManifestReader, unpartitioned: frozenset[int], snapshot_id: int) -> None:
        self.read = read
        self.unpartitioned = unpartitioned
        self.snapshot_id = snapshot_id
        self.known: dict[str, _Contents] = {}
        self.altered: list[str] = []
        self.duplicates: list[Identity] = []

    def difference(
        self, gone: Sequence[Manifest], come: Sequence[Manifest]
    ) -> tuple[list[Entry], list[Entry]]:
        """Entries removed and added by replacing the manifests `gone` by `come`.

        What the commit itself says (entries marked deleted and added) is taken for data files when
        kept, removed and replaced ones add up in files and rows, by the counts of the list before;
        else, and for delete files always, both sides are compared entry by entry.
        """
        written = [self.contents(m) for m in come]
        if not any(m.is_deletes for m in (*gone, *come)) and _accounted(written) == _live_counts(gone):
            self._unique(e for c in written for e in (*c.live, *c.deleted))
            return [e for c in written for e in c.deleted], [e for c in written for e in c.added]
        left = self._unique(e for m in gone for e in self.contents(m).live)
        now = self._unique(e for c in written for e in c.live)
        for identity in left.keys() & now.keys():
            if left[identity] != now[identity]:
                self.altered.append(f"{identity[0]} is kept as {now[identity]}, was {left[identity]}")
        return (
            [e for i, e in left.items() if i not in now],
            [e for i, e in now.items() if i not in left],
        )

    def contents(self, manifest: Manifest) -> _Contents:
        """The entries; their number by status is compared with the manifest list's."""
        if manifest.path in self.known:
            return self.known[manifest.path]
        found = _Contents([], [], [])
        counts = dict.fromkeys(EntryStatus, 0)
        scopes: dict[tuple[object, ...], Scope] = {}
        for entry in self.read(manifest.path, manifest.sequence_number, manifest.added_snapshot_id):
            status, partition = entry.status, entry.partition
            counts[status] += 1
            ours = entry.snapshot_id == self.snapshot_id
            if status is EntryStatus.DELETED and not ours:
                continue
            scope = scopes.get(partition)
            if scope is None:
                scope = scope_of(manifest.spec_id, partition, self.unpartitioned)
                if not any(isinstance(v, float) for v in partition):  # 0.0 == -0.0 as a key
                    scopes[partition] = scope
            value = Entry(
                entry.path,
                entry.kind,
                scope,
                entry.data_sequence_number,
                entry.record_count,
                entry.referenced_data_file,
                entry.content_offset,
            )
            if status is EntryStatus.DELETED:
                found.deleted.append(value)
                continue
            found.live.append(value)
            if ours and status is EntryStatus.ADDED:
                found.added.append(value)
        self._compare_counts(manifest, counts)
        self.known[manifest.path] = found
        return found

    def _unique(self, entries: Iterable[Entry]) -> dict[Identity, Entry]:
        found: dict[Identity, Entry] = {}
        for entry in entries:
            if entry.identity in found:
                self.duplicates.append(entry.identity)
            found[entry.identity] = entry
        return found

    def _compare_counts(self, manifest: Manifest, counts: Mapping[EntryStatus, int]) -> None:
        listed = {
            EntryStatus.ADDED: manifest.added_files,
            EntryStatus.EXISTING: manifest.existing_files,
            EntryStatus.DELETED: manifest.deleted_files,
        }
        for status, number in listed.items():
            if number is not None and number != counts[status]:
                self.altered.append(
                    f"manifest {manifest.path} holds {counts[status]} {status.name} entries, "
                    f"its list says {number}"
                )


def _undecided(removed: Sequence[Entry]) -> list[Entry]:
    """Vanished deletes that may still apply to something: not those of a file removed with them."""
    gone = {e.path for e in removed if e.kind is FileKind.DATA}
    return [e for e in removed if e.kind is not FileKind.DATA and e.referenced_data_file not in gone]


def _may_hold_data_of(manifest: Manifest, delete: Entry, unpartitioned: frozenset[int]) -> bool:
    """Whether the manifest may list data files to which the delete applies, by what its list says."""
    if manifest.is_deletes or manifest.min_sequence_number > delete.data_sequence_number:
        return False
    if delete.referenced_data_file is not None:
        return True
    spec_id = delete.scope[0]
    if delete.kind is FileKind.EQUALITY_DELETES:
        if manifest.min_sequence_number == delete.data_sequence_number:
            return False
        if spec_id in unpartitioned:
            return True
    return manifest.spec_id == spec_id


def _accounted(written: Iterable[_Contents]) -> tuple[int, int]:
    """Files and rows that new manifests keep or mark deleted."""
    files = rows = 0
    for contents in written:
        files += len(contents.live) - len(contents.added) + len(contents.deleted)
        rows += _rows(contents.live) - _rows(contents.added) + _rows(contents.deleted)
    return files, rows


def _rows(entries: Iterable[Entry]) -> int:
    return sum(e.record_count for e in entries)


def _live_counts(manifests: Iterable[Manifest]) -> tuple[int, int] | None:
    """Live files and their rows by the manifest list; None where a writer left counts out."""
    files = rows = 0
    for m in manifests:
        if None in (m.added_files, m.existing_files, m.added_rows, m.existing_rows):
            return None
        files += (m.added_files or 0) + (m.existing_files or 0)
        rows += (m.added_rows or 0) + (m.existing_rows or 0)
    return files, rows


def _live_data_files(manifests: Iterable[Manifest]) -> int | None:
    total = 0
    for manifest in manifests:
        if manifest.is_deletes:
            continue
        if manifest.added_files is None or manifest.existing_files is None:
            return None
        total += manifest.added_files + manifest.existing_files
    return total
