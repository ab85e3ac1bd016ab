"""A table in memory whose rows are known: manifests to read for the gate, and the rows a reader sees.

Sequence numbers are counted up by commits as Iceberg does; which delete hides which row follows the spec,
section "Scan Planning", written here a second time so that it can contradict the code under test.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from iceberg_maint.core.commits.change import Change, Lineage, Rule, Since, TableVersion
from iceberg_maint.core.commits.gate_rules import check
from iceberg_maint.core.commits.intent import AddedDelete, GroupIntent, Intent
from iceberg_maint.core.commits.manifest_diff import read_file_change
from iceberg_maint.core.commits.planned_files import PlannedFile
from iceberg_maint.core.model.partition_key import (
    FIRST_SPEC_ID,
    PartitionField,
    PartitionSpec,
    encode_partition,
)
from iceberg_maint.core.model.table_state import EntryStatus, FileKind, Manifest, ManifestEntry

UNPARTITIONED = frozenset({0})
SPECS = {
    0: PartitionSpec(0, ()),
    **{n: PartitionSpec(n, (PartitionField(999 + n, 1, "p", "identity", "string"),)) for n in (1, 2)},
    3: PartitionSpec(3, (PartitionField(1002, 2, "x", "identity", "double"),)),
}

Place = tuple[int, tuple[object, ...]]

ALL: Place = (0, ())
P1: Place = (1, ("a",))
Q1: Place = (1, ("b",))
P2: Place = (2, ("a",))


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
    offset: int | None = None
    size: int = 10
    row_id: int | None = None

    @property
    def records(self) -> int:
        return max(1, len(self.rows), len(self.positions))

    def entry(self, status: EntryStatus = EntryStatus.EXISTING, snapshot_id: int = 0) -> ManifestEntry:
        return ManifestEntry(
            status=status,
            snapshot_id=snapshot_id,
            data_sequence_number=self.seq,
            path=self.path,
            kind=self.kind,
            partition=self.place[1],
            record_count=self.records,
            size_bytes=self.size,
            referenced_data_file=self.referenced,
            content_offset=self.offset,
            first_row_id=self.row_id,
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
    first_row_ids: Mapping[str, int] = field(default_factory=dict)

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
        """Adds files and takes paths away; manifests that lose a file are written again."""
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
        return Lake(manifests, seq, marked, (since, *self.since), self.first_row_ids)

    def registered_again(self, path: str) -> Lake:
        """The file removed and its path registered once more, in one commit: with a new sequence number."""
        [file] = [f for f in self.files if f.path == path]
        return self.commit(replace(file, seq=self.seq + 1), operation="overwrite", without=[path])

    def rows(self) -> list[int]:
        """What a reader sees, sorted; it refuses two deletion vectors of one file with a ValueError."""
        return sorted(row for data in self.data for row in self.visible(data))

    def visible(self, data: File) -> tuple[int, ...]:
        """The rows of one data file that no delete hides."""
        gone = self.marked_rows(data) | self.rows_of_keys(data)
        return tuple(row for position, row in enumerate(data.rows) if position not in gone)

    def rows_of_keys(self, data: File) -> frozenset[int]:
        """The positions that equality deletes hide."""
        keys = [
            d.keys
            for d in self.deletes
            if d.kind is FileKind.EQUALITY_DELETES
            and data.seq < d.seq
            and (d.place[0] in UNPARTITIONED or d.place == data.place)
        ]
        return frozenset(n for n, row in enumerate(data.rows) if any(row in k for k in keys))

    def marked_rows(self, data: File) -> frozenset[int]:
        """The positions that deletes by position hide: a deletion vector stands for all others."""
        found = [d for d in self.deletes if d.kind is not FileKind.EQUALITY_DELETES and data.seq <= d.seq]
        vectors = [d for d in found if d.kind is FileKind.DELETION_VECTOR and d.referenced == data.path]
        if len(vectors) > 1:
            raise ValueError(f"two deletion vectors of {data.path}")
        applied = vectors or [d for d in found if d.referenced in (None, data.path)]
        return frozenset(n for d in applied for path, n in d.positions if path == data.path)

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
            first_row_id=self.first_row_ids.get(path),
        )

    def version(self, format_version: int = 2, parent_id: int | None = None) -> TableVersion:
        return TableVersion("u", format_version, 0, SPECS, self.seq, parent_id, self.seq, self.listed())


def _written(path: str) -> int:
    """The snapshot that wrote the manifest; it is its sequence number too."""
    return int(path.rpartition("~")[2]) if "~" in path else int(path[1:].partition("-")[0])


def key_of(place: Place) -> str:
    """The partition key of a place."""
    return encode_partition(SPECS[place[0]], place[1], FIRST_SPEC_ID)  # type: ignore[arg-type]


def intent_on(
    pinned: Lake, sources: Iterable[File], outputs: Iterable[File], dropped: Iterable[str] = ()
) -> Intent:
    """The intent of a rewrite of one group, planned at `pinned`."""
    sources, outputs = tuple(sources), tuple(outputs)
    group = GroupIntent(
        key_of(sources[0].place),
        sources[0].place[0],
        outputs[0].place[0] if outputs else sources[0].place[0],
        frozenset(f.path for f in sources),
        frozenset(f.path for f in outputs),
    )
    return standing_on(pinned, Intent("u", 2, pinned.seq, pinned.seq, 0, (group,), frozenset(dropped)))


def standing_on(pinned: Lake, intended: Intent) -> Intent:
    """The intent with the facts of its files, as they are live at `pinned`: of every delete file too."""
    paths = intended.removed | intended.examined
    return replace(
        intended,
        data_files=tuple(_planned(f) for f in pinned.data if f.path in paths),
        delete_files=tuple(_planned(d) for d in pinned.deletes if _stands_on(intended, d, pinned)),
    )


def _stands_on(intended: Intent, delete: File, pinned: Lake) -> bool:
    """Whether the delete file goes, or applies to a data file of the plan."""
    if delete.path in intended.dropped or (delete.path, delete.offset) in intended.replaced:
        return True
    paths = intended.removed | intended.examined
    return any(_applies(delete, f) for f in pinned.data if f.path in paths)


def _applies(delete: File, data: File) -> bool:
    if delete.kind is FileKind.EQUALITY_DELETES:
        return data.seq < delete.seq and (delete.place[0] in UNPARTITIONED or delete.place == data.place)
    if delete.referenced is not None:
        return delete.referenced == data.path and data.seq <= delete.seq
    return delete.place == data.place and data.seq <= delete.seq


def _planned(file: File) -> PlannedFile:
    return PlannedFile(
        (file.path, file.offset),
        file.place[0],
        key_of(file.place),
        file.seq,
        file.records,
        file.size,
        file.row_id,
    )


def conversion_on(
    pinned: Lake,
    examined: Iterable[File],
    marks: Iterable[File],
    dropped: Iterable[str] = (),
    format_version: int = 2,
    taken: Mapping[str, tuple[str, ...]] | None = None,
) -> Intent:
    """The intent of a conversion, planned at `pinned`: one group for each place. `taken` are the older delete files that
    the marks of a data file replace."""
    taken = taken or {}
    examined, marks = tuple(examined), tuple(marks)
    known = {d.path for d in pinned.deletes if d.kind is not FileKind.EQUALITY_DELETES}
    groups = []
    for place in sorted({f.place for f in examined}):
        paths = frozenset(f.path for f in examined if f.place == place)
        deletes = tuple(
            AddedDelete(
                (m.path, m.offset),
                m.kind,
                m.referenced,
                m.records,
                tuple(d.path for d in pinned.deletes if d.path in known and d.referenced == m.referenced),
                takes_over=taken.get(m.referenced or "", ()),
            )
            for m in marks
            if m.referenced in paths
        )
        groups.append(GroupIntent(key_of(place), place[0], place[0], examined=paths, deletes=deletes))
    replaced = frozenset((path, None) for g in groups for d in g.deletes for path in d.takes_over)
    intended = Intent(
        "u", format_version, pinned.seq, pinned.seq, 0, tuple(groups), frozenset(dropped), replaced
    )
    return standing_on(pinned, intended)


def change_of(
    pinned: Lake, base: Lake, new: Lake, opened: list[str] | None = None, intent: Intent | None = None
) -> Change:
    """What the commit from `base` to `new` does; `opened` receives the manifests that were read."""
    intent = intent or Intent("u", 2, pinned.seq, pinned.seq, 0, ())

    def read(path: str, sequence_number: int, snapshot_id: int) -> Iterator[ManifestEntry]:
        if opened is not None:
            opened.append(path)
        lake = next(lake for lake in (new, base, pinned) if path in lake.manifests)
        return iter(lake.entries(path))

    before, after = base.version(intent.format_version), new.version(intent.format_version, base.seq)
    return Change(
        base=before,
        new=after,
        lineage=Lineage(pinned_exists=True, reaches_pinned=True, since=base.since[: base.seq - pinned.seq]),
        files=read_file_change(intent, before, after, pinned.listed(), read),
    )


def table_of(*places: Place) -> Lake:
    """One file per place, each of one row: its number."""
    lake = Lake()
    for number, place in enumerate(places, 1):
        lake = lake.commit(File(f"f{number}", place, number, rows=(number,)))
    return lake


def rewritten(pinned: Lake, base: Lake, seq: int | None = None, place: Place | None = None) -> Lake:
    """Files f1 and f2 of `pinned` made one, on `base`."""
    sources = [f for f in pinned.data if f.path in {"f1", "f2"}]
    rows = tuple(r for f in sources for r in f.rows)
    output = File("new", place or sources[0].place, pinned.seq if seq is None else seq, rows=rows)
    return base.commit(output, operation="replace", without=[f.path for f in sources])


def intent(pinned: Lake, place: Place | None = None) -> Intent:
    """The intent of `rewritten`."""
    sources = [f for f in pinned.data if f.path in {"f1", "f2"}]
    return intent_on(pinned, sources, [File("new", place or sources[0].place, pinned.seq)])


def rules(intended: Intent, change: Change) -> set[Rule]:
    """The rules that are broken."""
    return {v.rule for v in check(intended, change)}
