"""A lake of plain values whose tables know their rows: snapshots, compare-and-swap, foreign writers.

A row is an integer, its key the row over 1,000. A data file holds rows, an equality delete keys, a position
delete the rows it marks.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from iceberg_maint.catalog.fake import fake_table
from iceberg_maint.core.ids import TableId
from iceberg_maint.core.state import (
    BATCH_PROPERTY,
    FENCE_PROPERTY,
    TOKEN_PROPERTY,
    FileKind,
    LiveFile,
    Manifest,
    Ref,
    Snapshot,
    TableState,
)
from iceberg_maint_tests.core.build import BY_P
from iceberg_maint_tests.simulation.disk import Disk

KEY = 1000
BYTES_PER_ROW = 5


@dataclass(frozen=True, slots=True)
class Swap:
    """A prepared commit: what it was based on and what it would make of it. `regrouped` manifests become
    one; of an expiry nothing but what goes counts."""

    base: TableState
    live: tuple[LiveFile, ...]
    operation: str
    summary: Mapping[str, str] = field(default_factory=dict)
    regrouped: frozenset[str] = frozenset()
    expire: tuple[int, ...] = ()
    expire_refs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Landed:
    """A commit of ours that is in the table."""

    table_uuid: str
    snapshot_id: int
    token: str
    fence: int
    batch_id: str
    operation: str


class SimTable:
    """One table by its UUID. `by_ref`: the catalog compares main's snapshot, as REST catalogs do, else the
    metadata's location."""

    def __init__(self, lake: Lake, name: TableId, uuid: str, *, by_ref: bool) -> None:
        self.lake = lake
        self.uuid = uuid
        self.by_ref = by_ref
        self.version = 0
        self.location = f"mem://lake/{uuid}"
        self.tags: dict[str, int] = {}
        state = fake_table(str(name), (), specs=(BY_P,)).state
        self.state = replace(
            state, uuid=uuid, location=self.location, metadata_location=self._metadata_location()
        )
        self.files: dict[int | None, tuple[LiveFile, ...]] = {None: ()}
        self.landed: list[Landed] = []
        self.rewound = False
        self.keeps = 20

    @property
    def live(self) -> tuple[LiveFile, ...]:
        return self.files[self.state.snapshot.snapshot_id if self.state.snapshot else None]

    def swap(self, swap: Swap) -> Snapshot | None:
        """The new snapshot, or None: the base is not the head any more, or the table is gone."""
        if not self.takes(swap):
            return None
        if not swap.expire and not swap.expire_refs:
            return self._append(swap.live, swap.operation, swap.summary, swap.regrouped)
        for name in swap.expire_refs:
            self.tags.pop(name, None)
        self.tags = {name: of for name, of in self.tags.items() if of not in swap.expire}
        kept = (s for s in self.state.snapshots if s.snapshot_id not in swap.expire)
        self._change(snapshots=tuple(kept))
        return self.state.snapshot

    def takes(self, swap: Swap) -> bool:
        """Whether the catalog lets the swap win now. A REST catalog compares no base of an expiry."""
        if self.lake.tables.get(swap.base.table) is not self or swap.base.uuid != self.uuid:
            return False
        if self.by_ref:
            return bool(swap.expire or swap.expire_refs) or swap.base.snapshot == self.state.snapshot
        return swap.base.metadata_location == self.state.metadata_location

    def reach(self) -> set[str]:
        """Every file of every retained snapshot."""
        return {f.path for s in self.state.snapshots for f in self.files[s.snapshot_id]}

    def tag(self, name: str, snapshot_id: int) -> None:
        self.tags[name] = snapshot_id
        self._change()

    def commit(self, live: Iterable[LiveFile], operation: str) -> Snapshot:
        """A foreign writer's commit, on the head."""
        return self._append(tuple(live), operation, {})

    def expire(self, keep: int) -> None:
        """Foreign expiry: the newest `keep` ancestors of the head stay."""
        kept = {s.snapshot_id for s in self.state.ancestors()[:keep]} | set(self.tags.values())
        self._change(snapshots=tuple(s for s in self.state.snapshots if s.snapshot_id in kept))

    def rewind(self) -> None:
        """An operator's roll-back of main to its parent. What was committed after it is undone."""
        ancestors = self.state.ancestors()
        if len(ancestors) > 1:
            self.rewound = True
            self._change(snapshot=ancestors[1])

    def rename(self, name: TableId) -> None:
        del self.lake.tables[self.state.table]
        self._change(table=name)
        self.lake.tables[name] = self

    def rows(self) -> list[int]:
        """The rows a reader sees, sorted; twice where they are there twice."""
        return self.lake.visible(self.live)

    def next_number(self) -> int:
        return self.state.last_sequence_number + 1

    def _append(
        self,
        live: tuple[LiveFile, ...],
        operation: str,
        summary: Mapping[str, str],
        regrouped: frozenset[str] = frozenset(),
    ) -> Snapshot:
        number = self.next_number()
        parent = self.state.snapshot.snapshot_id if self.state.snapshot else None
        snapshot = Snapshot(
            self.lake.new_id(), parent, number, self.lake.now_ms, operation, dict(summary), f"list-{number}"
        )
        self.files[snapshot.snapshot_id] = live
        kept = tuple(m for m in self.state.manifests if m.path not in regrouped)
        made = Manifest(f"manifest-{number}", 100, False, 0, number, number, snapshot.snapshot_id, *[1] * 5)
        self._change(
            snapshot=snapshot,
            snapshots=(*self.state.snapshots, snapshot),
            last_sequence_number=number,
            manifests=(*kept, made),
        )
        if TOKEN_PROPERTY in summary:
            self.landed.append(
                Landed(
                    self.uuid,
                    snapshot.snapshot_id,
                    summary[TOKEN_PROPERTY],
                    int(summary[FENCE_PROPERTY]),
                    summary[BATCH_PROPERTY],
                    summary["operation"],
                )
            )
        return snapshot

    def _change(self, **fields: object) -> None:
        self.version += 1
        self.state = replace(self.state, metadata_location=self._metadata_location(), **fields)  # type: ignore[arg-type]
        head = self.state.snapshot
        retained = {s.snapshot_id for s in self.state.snapshots}
        self.tags = {name: of for name, of in self.tags.items() if of in retained}
        main = (Ref("main", "branch", head.snapshot_id),) if head is not None else ()
        tags = (Ref(name, "tag", of) for name, of in self.tags.items())
        self.state = replace(self.state, refs=(*main, *tags))
        self.lake.changes += 1

    def _metadata_location(self) -> str:
        return f"{self.location}/metadata/{self.version:05}-x.metadata.json"


class Lake:
    """The tables by name, all that ever were by UUID, and the content of every file ever written."""

    def __init__(self, choose: random.Random, *, by_ref: bool) -> None:
        self.choose = choose
        self.by_ref = by_ref
        self.now_ms = 0
        self.changes = 0
        self.tables: dict[TableId, SimTable] = {}
        self.every: dict[str, SimTable] = {}
        self.content: dict[str, frozenset[int]] = {}
        self.disk = Disk(self)
        self._ids = 1000
        self._keys = 0

    def new_id(self) -> int:
        self._ids += 1
        return self._ids

    def create(self, name: TableId) -> SimTable:
        """A new table, in the place of the one that has the name."""
        uuid = f"uuid-{len(self.every)}"
        table = SimTable(self, name, uuid, by_ref=self.by_ref)
        self.tables[name] = self.every[uuid] = table
        self.changes += 1
        return table

    def landed(self) -> Iterable[Landed]:
        return (one for table in self.every.values() for one in table.landed)

    def new_file(
        self,
        table: SimTable,
        partition: str,
        content: Iterable[int],
        number: int,
        kind: FileKind = FileKind.DATA,
        of: str | None = None,
    ) -> LiveFile:
        """A file that nothing refers to yet, its size by its content."""
        rows = frozenset(content)
        path = f"{table.location}/data/{partition}/{kind.value}-{self.new_id()}"
        self.content[path] = rows
        self.disk.put(path, max(1, BYTES_PER_ROW * len(rows)))
        return LiveFile(
            path,
            kind,
            BY_P.spec_id,
            partition,
            len(rows),
            max(1, BYTES_PER_ROW * len(rows)),
            number,
            "parquet",
            referenced_data_file=of,
            equality_ids=(1,) if kind is FileKind.EQUALITY_DELETES else (),
            file_sequence_number=number,
        )

    def left_of(self, file: LiveFile, deletes: Iterable[LiveFile]) -> frozenset[int]:
        """The rows of a data file that these deletes, where they apply to it, leave visible (Iceberg spec,
        "Scan Planning")."""
        rows = self.content[file.path]
        for delete in deletes:
            if delete.kind is FileKind.EQUALITY_DELETES:
                if delete.partition == file.partition and (
                    file.data_sequence_number < delete.data_sequence_number
                ):
                    keys = self.content[delete.path]
                    rows = frozenset(r for r in rows if r // KEY not in keys)
            elif delete.referenced_data_file in (None, file.path) and (
                delete.partition == file.partition
                and file.data_sequence_number <= delete.data_sequence_number
            ):
                rows -= self.content[delete.path]
        return rows

    def visible(self, live: Iterable[LiveFile]) -> list[int]:
        files = tuple(live)
        deletes = [f for f in files if f.kind is not FileKind.DATA]
        data = (f for f in files if f.kind is FileKind.DATA)
        return sorted(row for f in data for row in self.left_of(f, deletes))

    # foreign writers, each in one commit

    def write(self, table: SimTable) -> None:
        """An append, upsert, delete by position or of whole files, or another engine's compaction."""
        partition = f"p={self.choose.choice('abc')}"
        live = [f for f in table.live if f.partition == partition and f.kind is FileKind.DATA]
        acts = ["append", "append", "upsert", "mark", "remove", "compact"] if live else ["append"]
        getattr(self, f"_{self.choose.choice(acts)}")(table, partition, live)

    def append(self, table: SimTable, partition: str, files: int) -> None:
        number = table.next_number()
        new = [self.new_file(table, partition, self._new_rows(2), number) for _ in range(files)]
        table.commit((*table.live, *new), "append")

    def upsert(self, table: SimTable, partition: str, files: int = 1) -> None:
        """New versions of some live keys: equality deletes, and data of the same commit."""
        number = table.next_number()
        live = [f for f in table.live if f.partition == partition and f.kind is FileKind.DATA]
        added = []
        for file in self.choose.sample(live, min(files, len(live))):
            rows = sorted(self.content[file.path])
            key = self.choose.choice(rows) // KEY
            newest = max(r for rows in self.content.values() for r in rows if r // KEY == key)
            added.append(self.new_file(table, partition, [key], number, FileKind.EQUALITY_DELETES))
            added.append(self.new_file(table, partition, [newest + 1], number))
        table.commit((*table.live, *added), "overwrite")

    def compact(self, table: SimTable, partition: str) -> None:
        """Every data file of the partition is written anew, so that there is as much to do as before."""
        live = [f for f in table.live if f.partition == partition and f.kind is FileKind.DATA]
        deletes = [f for f in table.live if f.kind is not FileKind.DATA]
        paths = {f.path for f in live}
        number = table.next_number()
        anew = [
            self.new_file(table, partition, rows, number)
            for rows in (self.left_of(f, deletes) for f in live)
            if rows
        ]
        kept = (f for f in table.live if f.path not in paths and f.referenced_data_file not in paths)
        table.commit((*kept, *anew), "replace")

    def _append(self, table: SimTable, partition: str, _live: list[LiveFile]) -> None:
        self.append(table, partition, self.choose.randint(1, 6))

    def _upsert(self, table: SimTable, partition: str, _live: list[LiveFile]) -> None:
        self.upsert(table, partition, self.choose.randint(1, 2))

    def _mark(self, table: SimTable, partition: str, live: list[LiveFile]) -> None:
        file = self.choose.choice(live)
        row = self.choose.choice(sorted(self.content[file.path]))
        scope = self.choose.choice([file.path, None])
        delete = self.new_file(
            table, partition, [row], table.next_number(), FileKind.POSITION_DELETES, of=scope
        )
        table.commit((*table.live, delete), "overwrite")

    def _remove(self, table: SimTable, partition: str, live: list[LiveFile]) -> None:
        gone = self.choose.choice(live).path
        named = [f for f in table.live if gone not in (f.path, f.referenced_data_file)]
        table.commit(named, "delete")

    def _compact(self, table: SimTable, partition: str, live: list[LiveFile]) -> None:
        deletes = [f for f in table.live if f.kind is not FileKind.DATA]
        paths = {f.path for f in live}
        rows = [r for f in live for r in self.left_of(f, deletes)]
        merged = [self.new_file(table, partition, rows, table.next_number())] if rows else []
        kept = (f for f in table.live if f.path not in paths and f.referenced_data_file not in paths)
        table.commit((*kept, *merged), "replace")

    def new_key(self) -> int:
        self._keys += 1
        return self._keys

    def _new_rows(self, count: int) -> list[int]:
        return [self.new_key() * KEY for _ in range(count)]


def twice(rows: Iterable[int]) -> list[int]:
    """Rows that are there more than once."""
    return sorted(row for row, times in Counter(rows).items() if times > 1)
