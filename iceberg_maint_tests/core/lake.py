"""A table in memory whose rows are known: manifests to read for the gate, and the rows a reader sees.

Sequence numbers are counted up by commits as Iceberg does; which delete hides which row follows the spec,
section "Scan Planning", written anew here so that it can contradict the code under test.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from iceberg_maint.core.change import Change, Lineage, Since, TableVersion
from iceberg_maint.core.difference import read_file_change
from iceberg_maint.core.intent import GroupIntent, Intent
from iceberg_maint.core.state import EntryStatus, FileKind, Manifest, ManifestEntry

UNPARTITIONED = frozenset({0})
SPECS = frozenset({0, 1, 2})

Place = tuple[int, tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class File:
    """A data file with its rows (position is the index), or a delete file with what it deletes."""

    path: str
    place: Place
    seq: int
    kind: FileKind = FileKind.DATA
    rows: tuple[int, ...] = ()
    keys: frozenset[int] = frozenset()
    positions: frozenset[tuple[str, int]] = frozenset()
    referenced: str | None = None

    @property
    def records(self) -> int:
        return max(1, len(self.rows))

    def entry(self, status: EntryStatus = EntryStatus.EXISTING, snapshot_id: int = 0) -> ManifestEntry:
        return ManifestEntry(
            status=status,
            snapshot_id=snapshot_id,
            data_sequence_number=self.seq,
            path=self.path,
            kind=self.kind,
            partition=self.place[1],
            record_count=self.records,
            referenced_data_file=self.referenced,
        )


@dataclass(frozen=True, slots=True)
class Lake:
    """The live files in their manifests, and the ones that the last commit marked deleted there.

    A manifest holds files of one kind and spec; the snapshot that wrote it is part of its path.
    """

    manifests: Mapping[str, tuple[File, ...]] = field(default_factory=dict)
    seq: int = 0
    marked: Mapping[str, tuple[File, ...]] = field(default_factory=dict)
    since: tuple[Since, ...] = ()

    @property
    def files(self) -> tuple[File, ...]:
        return tuple(f for files in self.manifests.values() for f in files)

    @property
    def data(self) -> tuple[File, ...]:
        return tuple(f for f in self.files if f.kind is FileKind.DATA)

    @property
    def deletes(self) -> tuple[File, ...]:
        return tuple(f for f in self.files if f.kind is not FileKind.DATA)

    def commit(self, *files: File, operation: str = "append", without: Iterable[str] = ()) -> Lake:
        """Adds files and takes paths away; manifests that lose a file are written anew."""
        gone, seq = set(without), self.seq + 1
        manifests: dict[str, tuple[File, ...]] = {}
        marked: dict[str, tuple[File, ...]] = {}
        for path, held in self.manifests.items():
            kept = tuple(f for f in held if f.path not in gone)
            if len(kept) == len(held):
                manifests[path] = held
                if path in self.marked:
                    marked[path] = self.marked[path]
                continue
            manifests[f"{path}~{seq}"] = kept
            marked[f"{path}~{seq}"] = tuple(f for f in held if f.path in gone)
        for index, file in enumerate(files):
            manifests[f"m{seq}-{index}"] = (file,)
        adds = any(f.kind is not FileKind.DATA for f in files)
        removes = any(f.path in gone for f in self.deletes)
        since = Since(seq, operation, adds, removes, ours=False)
        return Lake(manifests, seq, marked, (since, *self.since))

    def rows(self) -> list[int]:
        """What a reader sees, sorted."""
        return sorted(
            row
            for data in self.data
            for position, row in enumerate(data.rows)
            if not any(self._hides(delete, data, position, row) for delete in self.deletes)
        )

    @staticmethod
    def _hides(delete: File, data: File, position: int, row: int) -> bool:
        if delete.kind is FileKind.EQUALITY_DELETES:
            everywhere = delete.place[0] in UNPARTITIONED
            in_scope = everywhere or delete.place == data.place
            return row in delete.keys and data.seq < delete.seq and in_scope
        return (data.path, position) in delete.positions and data.seq <= delete.seq

    def listed(self) -> tuple[Manifest, ...]:
        return tuple(self._listed(path, files) for path, files in self.manifests.items())

    def entries(self, path: str) -> list[ManifestEntry]:
        """All entries of one manifest: added by the commit that made it, or rewritten by a later one."""
        status = EntryStatus.EXISTING if "~" in path else EntryStatus.ADDED
        live = [f.entry(status, _written(path)) for f in self.manifests[path]]
        return live + [f.entry(EntryStatus.DELETED, _written(path)) for f in self.marked.get(path, ())]

    def _listed(self, path: str, files: tuple[File, ...]) -> Manifest:
        marked = self.marked.get(path, ())
        rows = sum(f.records for f in files)
        return Manifest(
            path=path,
            length_bytes=1,
            is_deletes=any(f.kind is not FileKind.DATA for f in (*files, *marked)),
            spec_id=next((f.place[0] for f in (*files, *marked)), 0),
            sequence_number=_written(path),
            min_sequence_number=min((f.seq for f in files), default=_written(path)),
            added_snapshot_id=_written(path),
            added_files=0 if "~" in path else len(files),
            existing_files=len(files) if "~" in path else 0,
            deleted_files=len(marked),
            added_rows=0 if "~" in path else rows,
            existing_rows=rows if "~" in path else 0,
        )

    def version(self, snapshot_id: int, parent_id: int | None) -> TableVersion:
        return TableVersion("u", 2, 0, SPECS, UNPARTITIONED, snapshot_id, parent_id, self.listed())


def _written(path: str) -> int:
    """The snapshot that wrote the manifest; it is its sequence number too."""
    return int(path.rpartition("~")[2]) if "~" in path else int(path[1:].partition("-")[0])


def intent_on(pinned: Lake, sources: Iterable[File], outputs: Iterable[File]) -> Intent:
    """The intent of one group, planned at `pinned`."""
    sources, outputs = tuple(sources), tuple(outputs)
    group = GroupIntent(
        "p",
        sources[0].place[0],
        outputs[0].place[0] if outputs else sources[0].place[0],
        frozenset(f.path for f in sources),
        frozenset(f.path for f in outputs),
    )
    return Intent("u", 2, pinned.seq, pinned.seq, 0, (group,))


def change_of(pinned: Lake, base: Lake, new: Lake, opened: list[str] | None = None) -> Change:
    """What the commit from `base` to `new` does; `opened` receives the manifests that were read."""

    def read(path: str, sequence_number: int, snapshot_id: int) -> Iterator[ManifestEntry]:
        if opened is not None:
            opened.append(path)
        return iter((new if path in new.manifests else base).entries(path))

    return Change(
        base=base.version(base.seq, None),
        new=new.version(new.seq, base.seq),
        lineage=Lineage(pinned_exists=True, reaches_pinned=True, since=base.since[: base.seq - pinned.seq]),
        files=read_file_change(base.listed(), new.listed(), new.seq, pinned.seq, UNPARTITIONED, read),
    )
