"""Reads the live entries of a pinned snapshot as values, to plan with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from pyiceberg.io import FileIO

from iceberg_maint.catalog.manifests.avro import Column
from iceberg_maint.catalog.manifests.column_overlap import measured_ids, ranges_of
from iceberg_maint.catalog.manifests.memo import ManifestMemo, memo_for
from iceberg_maint.catalog.manifests.reader import (
    CONTENT_OFFSET,
    DELETE_FILE_PATH,
    EQUALITY_IDS,
    FILE_SEQUENCE_NUMBER,
    FIRST_ROW_ID,
    FORMAT,
    KINDS,
    LOWER_BOUNDS,
    PATH,
    REFERENCED_FILE,
    SORT_ORDER_ID,
    UPPER_BOUNDS,
    check_manifest_list,
    first_row_ids,
    has_live_files,
    only_path,
    read_live_entries,
)
from iceberg_maint.core.model.ids import PartitionKey
from iceberg_maint.core.model.partition_key import encode_partition
from iceberg_maint.core.model.table_state import (
    ChangedFiles,
    FileKind,
    LiveFile,
    Manifest,
    TableState,
)
from iceberg_maint.errors import RefusedError

_ROW_IDS_SINCE = 3
_ALWAYS_READ = 6
"""The number of columns of an entry that are read in any case."""


def live_files(
    io: FileIO,
    state: TableState,
    partitions: Collection[PartitionKey],
    memo: ManifestMemo | None = None,
) -> tuple[LiveFile, ...]:
    """Returns the live files of the partitions with these keys, and all global equality deletes. Data
    files have their ranges if the state has an order. A data manifest is not opened if the memo shows that it has no
    file of these partitions. The bounds in manifest lists are not used: other writers state them.

    Raises RefusedError ICM-120 if a data file is listed twice.
    """
    files = _files_of(io, state, state.manifests, frozenset(partitions), memo)
    data_paths: set[str] = set()
    for file in files:
        if file.kind is FileKind.DATA and file.path in data_paths:
            raise RefusedError(
                "ICM-120",
                f"{state.table}: data file {file.path} is referenced twice; rewriting it would change "
                "the number of rows.",
                "remove one of the two references first.",
            )
        data_paths.add(file.path)
    return tuple(files)


def changed_files(
    io: FileIO,
    state: TableState,
    since: Sequence[Manifest],
    partitions: Collection[PartitionKey],
    memo: ManifestMemo | None = None,
) -> ChangedFiles:
    """Returns the live files of these partitions and all global equality deletes in the manifests that only
    one of two manifest lists has: `since` and that of the pinned snapshot. A manifest that the lists state
    differently counts as changed, also if only its first row id differs: an upgrade to format v3 gives row ids."""
    earlier, later = (Counter((m, m.first_row_id) for m in of) for of in (since, state.manifests))
    keys = frozenset(partitions)
    removed, added = (
        _files_of(io, state, [manifest for manifest, _ in only.elements()], keys, memo)
        for only in (earlier - later, later - earlier)
    )
    return ChangedFiles(tuple(removed), tuple(added))


def _files_of(
    io: FileIO,
    state: TableState,
    manifests: Sequence[Manifest],
    keys: frozenset[PartitionKey],
    memo: ManifestMemo | None,
) -> list[LiveFile]:
    """Returns the live files of these partitions and all global equality deletes in these manifests."""
    live = [m for m in manifests if has_live_files(m)]
    unneeded = _unneeded(state, live, keys, memo)
    return [f for m in live if m.path not in unneeded for f in _files(io, state, m, keys)]


def _unneeded(
    state: TableState, manifests: Iterable[Manifest], keys: frozenset[PartitionKey], memo: ManifestMemo | None
) -> set[str]:
    """Returns the paths of data manifests that have no file of these partitions, as far as the memo knows."""
    memo = memo_for(memo, state.manifests)
    if memo is None:
        return set()
    known = memo.partitions(m for m in manifests if not m.is_deletes)
    return {
        path
        for path, (spec_id, values) in known.items()
        if keys.isdisjoint(encode_partition(state.specs[spec_id], v, state.first_spec_id) for v in values)  # type: ignore[arg-type]
    }


def find_live(
    read_manifests: Callable[[str], tuple[Manifest, ...]],
    read_paths: Callable[[Manifest], Collection[str]],
    state: TableState,
    paths: Collection[str],
    *,
    deletes: bool,
    since: int | None = None,
) -> frozenset[str]:
    """Returns which paths are live data files, or with `deletes` live delete files, in any retained snapshot. The
    newest snapshots are read first.

    The files are newer than the snapshot `since`. Therefore neither it, nor its ancestors, nor a manifest that it
    lists has them. If it is not retained, all snapshots are read.
    """
    searched, live_paths = frozenset(paths), set[str]()
    pinned = state.snapshot_by_id(since) if since is not None else None
    older = {s.snapshot_id for s in replace(state, snapshot=pinned).ancestors()}
    newer = [s for s in reversed(state.snapshots) if s.snapshot_id not in older]
    read_manifest_paths = set[str]()
    if pinned is not None and newer:
        read_manifest_paths |= {m.path for m in read_manifests(check_manifest_list(state.table, pinned))}
    for snapshot in newer:
        if searched <= live_paths:
            break
        for manifest in read_manifests(check_manifest_list(state.table, snapshot)):
            if (
                manifest.is_deletes is not deletes
                or manifest.path in read_manifest_paths
                or not has_live_files(manifest)
            ):
                continue
            read_manifest_paths.add(manifest.path)
            live_paths |= searched.intersection(read_paths(manifest))
    return frozenset(live_paths)


def _files(
    io: FileIO, state: TableState, manifest: Manifest, partitions: frozenset[PartitionKey]
) -> Iterator[LiveFile]:
    spec, order = state.specs[manifest.spec_id], state.order
    deletes = (REFERENCED_FILE, CONTENT_OFFSET, EQUALITY_IDS) if manifest.is_deletes else (None,) * 3
    columns_of = (DELETE_FILE_PATH,) if manifest.is_deletes else measured_ids(order)
    bounds = (LOWER_BOUNDS, UPPER_BOUNDS) if columns_of else (None, None)
    has_row_ids = state.format_version >= _ROW_IDS_SINCE and not manifest.is_deletes
    row_id = FIRST_ROW_ID if has_row_ids else None
    fields = (PATH, FORMAT, SORT_ORDER_ID, FILE_SEQUENCE_NUMBER, row_id, *deletes, *bounds)
    read = tuple(i for i in fields if i is not None)
    entries = read_live_entries(io, manifest, str(state.table), read, columns_of)
    more = iter(entries.more)
    nothing: Column = [None] * len(entries)
    keys = [encode_partition(spec, values, state.first_spec_id) for values in entries.partitions]  # type: ignore[arg-type]
    columns = (
        *(entries.partition.tolist(), entries.kind.tolist(), entries.records.tolist()),
        *(entries.size_bytes.tolist(), entries.sequence_number.tolist()),
        (entries.snapshot_id == manifest.added_snapshot_id).tolist(),
        *(nothing if i is None else next(more) for i in fields),
    )
    row_ids: Sequence[int | None] = [None] * len(entries)
    if has_row_ids:
        own_ids = columns[_ALWAYS_READ + fields.index(FIRST_ROW_ID)]
        row_ids = first_row_ids(own_ids, entries.records.tolist(), manifest.first_row_id)
    for first_row_id, (at, kind, records, size, number, added, path, form, sort_order_id, own, *rest) in zip(
        row_ids, zip(*columns, strict=True), strict=True
    ):
        _, referenced, offset, equality_ids, lower, upper = rest
        key, file_kind = keys[at], KINDS[kind]
        is_global = file_kind is FileKind.EQUALITY_DELETES and spec.is_unpartitioned
        if key not in partitions and not is_global:
            continue
        if file_kind is FileKind.POSITION_DELETES and referenced is None:
            referenced = only_path(lower, upper)
        yield LiveFile(
            path=path,
            kind=file_kind,
            spec_id=manifest.spec_id,
            partition=key,
            record_count=records,
            size_bytes=size,
            data_sequence_number=number,
            file_format=form.lower(),
            sort_order_id=sort_order_id,
            referenced_data_file=referenced,
            content_offset=offset,
            equality_ids=tuple(equality_ids or ()),
            # Only an entry that its manifest added inherits the manifest's number.
            file_sequence_number=manifest.sequence_number if own is None and added else own,
            ranges=ranges_of(order.measured, lower, upper) if order and file_kind is FileKind.DATA else (),
            first_row_id=first_row_id,
        )
