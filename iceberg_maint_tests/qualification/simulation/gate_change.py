"""The change of a simulated commit as the product's gate reads it: of live files in place of manifests."""

from __future__ import annotations

from collections.abc import Iterable

from iceberg_maint.core.commits.change import (
    Change,
    Entry,
    FileChange,
    Lineage,
    Since,
    TableVersion,
    scope_of,
)
from iceberg_maint.core.commits.intent import Intent
from iceberg_maint.core.model.partition_key import FIRST_SPEC_ID, decode_partition
from iceberg_maint.core.model.table_state import TOKEN_PROPERTY, FileKind, LiveFile, Snapshot, TableState
from iceberg_maint_tests.qualification.simulation.sim_table import SimTable
from iceberg_maint_tests.support.core.values import BY_P

_SPECS = {BY_P.spec_id: BY_P}
_SCOPES = {
    partition: scope_of(*decode_partition(partition, _SPECS, FIRST_SPEC_ID), frozenset())
    for partition in ("p=a", "p=b", "p=c")
}


def change_of(intent: Intent, table: SimTable, base: TableState, after: Iterable[LiveFile]) -> Change:
    """What a commit on this base makes of its live files."""
    assert base.snapshot is not None
    before, live = table.files[base.snapshot.snapshot_id], tuple(after)
    chain = base.ancestors()
    ids = [s.snapshot_id for s in chain]
    pinned_exists = base.snapshot_by_id(intent.snapshot_id) is not None
    reaches = intent.snapshot_id in ids
    since = chain[: ids.index(intent.snapshot_id)] if reaches else ()
    pinned = table.files[intent.snapshot_id] if pinned_exists else ()
    return Change(
        _version(base, base.snapshot, base.snapshot.parent_id, base.snapshot.sequence_number),
        _version(base, base.snapshot, base.snapshot.snapshot_id, base.last_sequence_number + 1, new=True),
        Lineage(pinned_exists, reaches, tuple(_since(table, s) for s in since)),
        _files(intent, pinned, before, live),
    )


def _version(
    base: TableState, head: Snapshot, parent_id: int | None, number: int, *, new: bool = False
) -> TableVersion:
    snapshot_id = -1 if new else head.snapshot_id
    return TableVersion(
        base.uuid, base.format_version, base.schema_id, _SPECS, snapshot_id, parent_id, number, ()
    )


def _since(table: SimTable, snapshot: Snapshot) -> Since:
    now = {f.path for f in table.files[snapshot.snapshot_id] if f.kind is not FileKind.DATA}
    files = table.files.get(snapshot.parent_id, ())
    former = {f.path for f in files if f.kind is not FileKind.DATA}
    ours = TOKEN_PROPERTY in snapshot.summary
    return Since(
        snapshot.snapshot_id,
        snapshot.operation,
        adds_deletes=bool(now - former),
        removes_deletes=bool(former - now),
        ours=ours,
    )


def _files(
    intent: Intent, pinned: Iterable[LiveFile], before: Iterable[LiveFile], after: Iterable[LiveFile]
) -> FileChange:
    known = {_entry(f) for f in pinned}
    old, new = [_entry(f) for f in before], [_entry(f) for f in after]
    paths = {e.path for e in old}
    removed = tuple(e for e in old if e not in set(new))
    planned, deletes = intent.planned, {f.identity for f in intent.delete_files}
    marked = {d.data_file for d in intent.deletes}
    number = intent.snapshot_sequence_number
    return FileChange(
        removed=removed,
        added=tuple(e for e in new if e not in set(old)),
        altered=(),
        duplicates=(),
        new_deletes=tuple(e for e in old if e.kind is not FileKind.DATA and e.data_sequence_number > number),
        survivors=tuple(e for e in new if e.kind is FileKind.DATA),
        lost=tuple(sorted(e.path for e in known if e.path in marked - paths)),
        arrivals=tuple(e for e in old if e.identity in planned and e not in known and e not in set(removed)),
        departures=tuple(sorted(e.identity for e in known if e.identity in deletes and e.path not in paths)),
        outlived=(),
        live_before=sum(e.kind is FileKind.DATA for e in old),
        live_after=sum(e.kind is FileKind.DATA for e in new),
    )


def _entry(file: LiveFile) -> Entry:
    return Entry(
        file.path,
        file.kind,
        _SCOPES[file.partition],
        file.data_sequence_number,
        file.record_count,
        file.referenced_data_file,
        file.content_offset,
        file.size_bytes,
    )
