"""A table of the lake that knows its rows: snapshots, compare-and-swap, tags, expiry."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Protocol

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import (
    BATCH_PROPERTY,
    FENCE_PROPERTY,
    TOKEN_PROPERTY,
    LiveFile,
    Manifest,
    Ref,
    Snapshot,
    TableState,
)
from iceberg_maint_tests.qualification.simulation.disk import Disk
from iceberg_maint_tests.support.core.values import BY_P
from iceberg_maint_tests.support.fakes.catalog import document_of, fake_table


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
    """A commit of ours that is in the table. `files` are the paths that it added."""

    table_uuid: str
    snapshot_id: int
    token: str
    fence: int
    batch_id: str
    operation: str
    files: frozenset[str]


class TableLake(Protocol):
    """What a table uses of its lake."""

    now_ms: int
    changes: int
    tables: dict[TableId, SimTable]
    others: list[SimTable]
    disk: Disk

    def new_id(self) -> int: ...

    def visible(self, live: Iterable[LiveFile]) -> list[int]: ...


class SimTable:
    """One table by its UUID. `by_ref`: the catalog compares main's snapshot, as REST catalogs do, else the
    metadata's location."""

    def __init__(self, lake: TableLake, name: TableId, uuid: str, *, by_ref: bool) -> None:
        self.lake = lake
        self.uuid = uuid
        self.by_ref = by_ref
        self.version = 0
        self.line = "x"
        self.location = f"mem://lake/{uuid}"
        self.tags: dict[str, int] = {}
        state = fake_table(str(name), (), specs=(BY_P,)).state
        self.state = replace(
            state, uuid=uuid, location=self.location, metadata_location=self._metadata_location()
        )
        self.former: dict[str, TableState] = {}
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

    def document(self, location: str) -> dict[str, Any]:
        """The metadata file at a location, as far as expiry looks at it."""
        if location == self.state.metadata_location:
            return document_of(self.state, self.former)
        return document_of(self.former[location], self.log(location))

    def reach(self) -> set[str]:
        """Every file of every retained snapshot."""
        return {f.path for s in self.state.snapshots for f in self.files[s.snapshot_id]}

    def tag(self, name: str, snapshot_id: int) -> None:
        self.tags[name] = snapshot_id
        self._change()

    def commit(
        self, live: Iterable[LiveFile], operation: str, summary: Mapping[str, str] | None = None
    ) -> Snapshot:
        """A foreign writer's commit, on the head."""
        return self._append(tuple(live), operation, summary or {})

    def log(self, location: str) -> list[str]:
        """The metadata locations before this one, oldest first."""
        return list(takewhile(lambda former: former != location, self.former))

    def second_line(self) -> SimTable:
        """The same table as a catalog has it that is not configured: from now on it commits by itself, and each of its
        metadata files is on the disk."""
        other = copy(self)
        other.line, other.landed = f"other{self.lake.new_id()}", []
        other.files, other.former, other.tags = dict(self.files), dict(self.former), dict(self.tags)
        self.lake.others.append(other)
        return other

    def restore_pointer(self, versions: int) -> None:
        """The catalog is restored from a backup: it points at a metadata file of some versions ago. Another catalog has
        the line that is left."""
        other = self.second_line()
        other.line = self.line
        former = list(self.former)[-versions:]
        for location in [*former[1:], self.state.metadata_location]:
            other.write_metadata(location)
        self.line = f"restored{self.lake.new_id()}"
        self.state = replace(self.former[former[0]], table=self.state.table)
        self.former = {at: self.former[at] for at in list(self.former)[:-versions]}
        self.tags = {r.name: r.snapshot_id for r in self.state.refs if r.kind == "tag"}
        self.lake.changes += 1

    def write_metadata(self, location: str) -> None:
        """The metadata file of one version, as far as others read it."""
        state = self.former.get(location, self.state)
        log = [
            {"metadata-file": at, "timestamp-ms": self.former[at].last_updated_ms}
            for at in self.log(location)
        ]
        document = {
            "format-version": state.format_version,
            "table-uuid": state.uuid,
            "last-sequence-number": state.last_sequence_number,
            "last-updated-ms": state.last_updated_ms,
            "metadata-log": log,
        }
        self.lake.disk.put(location, 1, [json.dumps(document).encode()])

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
        snapshot_id = self.lake.new_id()
        manifest_list = f"{self.location}/metadata/snap-{snapshot_id}.avro"
        snapshot = Snapshot(
            snapshot_id, parent, number, self.lake.now_ms, operation, dict(summary), manifest_list
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
            before = {f.path for f in self.files[parent]} if parent is not None else set()
            self.landed.append(
                Landed(
                    self.uuid,
                    snapshot.snapshot_id,
                    summary[TOKEN_PROPERTY],
                    int(summary[FENCE_PROPERTY]),
                    summary[BATCH_PROPERTY],
                    summary["operation"],
                    frozenset(f.path for f in live) - before,
                )
            )
        return snapshot

    def _change(self, **fields: object) -> None:
        self.version += 1
        self.former[self.state.metadata_location] = self.state
        fields |= {"metadata_location": self._metadata_location(), "last_updated_ms": self.lake.now_ms}
        self.state = replace(self.state, **fields)  # type: ignore[arg-type]
        head = self.state.snapshot
        retained = {s.snapshot_id for s in self.state.snapshots}
        self.tags = {name: of for name, of in self.tags.items() if of in retained}
        main = (Ref("main", "branch", head.snapshot_id),) if head is not None else ()
        tags = (Ref(name, "tag", of) for name, of in self.tags.items())
        self.state = replace(self.state, refs=(*main, *tags))
        self.lake.changes += 1
        if self in self.lake.others:
            self.write_metadata(self.state.metadata_location)

    def _metadata_location(self) -> str:
        return f"{self.location}/metadata/{self.version:05}-{self.line}.metadata.json"
