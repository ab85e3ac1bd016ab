"""Reads the live entries of a pinned snapshot: as columns to measure, and as values to plan with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from pyiceberg.io import FileIO

from iceberg_maint.catalog.manifests.avro import Column
from iceberg_maint.catalog.manifests.column_overlap import file_layout, ranges_of
from iceberg_maint.catalog.manifests.measure import Columns, Mask, References, to_columns
from iceberg_maint.catalog.manifests.memo import ManifestMemo
from iceberg_maint.catalog.manifests.projection import Projection, Wanted, numbers_of, path_digests
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
    POSITION_DELETES,
    REFERENCED_FILE,
    SORT_ORDER_ID,
    UPPER_BOUNDS,
    Integers,
    LiveEntries,
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
    LayoutOrder,
    LiveFile,
    Manifest,
    TableState,
)
from iceberg_maint.errors import RefusedError


def read_columns(io: FileIO, state: TableState, memo: ManifestMemo | None = None) -> Columns:
    """Returns all live entries as columns, with their layout if the state has an order. Raises
    UnreadableTableError.

    The paths of data files are read only if deletes name files, and only their digests are kept. The sequence
    numbers of the adding commits are read only if some position deletes name no file. Data manifests that the
    memo has are not opened.
    """
    table = str(state.table)
    asked = (REFERENCED_FILE, LOWER_BOUNDS, UPPER_BOUNDS)
    bounds_of = (DELETE_FILE_PATH,)
    deletes = [read_live_entries(io, m, table, asked, bounds_of) for m in _live(state, deletes=True)]
    named = [_named(part) for part in deletes]
    numbers = {path: at for at, path in enumerate({p for of in named for p in of if p is not None})}
    shared = any(
        path is None and kind == POSITION_DELETES
        for part, of in zip(deletes, named, strict=True)
        for path, kind in zip(of, part.kind.tolist(), strict=True)
    )
    data = _project_all(io, state, Wanted(bool(numbers), shared, state.order), memo)
    live: dict[str, int] = {}
    if numbers:
        digests = path_digests(numbers)
        by_digest = {digest.tobytes(): path for digest, path in zip(digests, numbers, strict=True)}
        live = numbers_of(data, by_digest)
    references = [
        References(
            np.array([-1 if path is None else numbers[path] for path in of], np.int64),
            _unreferenced(part, of, live),
        )
        for part, of in zip(deletes, named, strict=True)
    ]
    nothing = [References.none(len(part.entries)) for part in data]
    of_deletes = [part.sequence_number for part in deletes]
    added = [part.entries.sequence_number if part.added is None else part.added for part in data]
    return to_columns(
        state,
        [p.without_more() for p in deletes] + [p.entries for p in data],
        [*references, *nothing],
        [*of_deletes, *added],
    )


def _project_all(
    io: FileIO, state: TableState, wanted: Wanted, memo: ManifestMemo | None
) -> list[Projection]:
    """Returns the projections of the data manifests, in the order of the manifest list."""
    manifests = list(_live(state, deletes=False))
    memo = _for_table(memo, state)
    known = memo.get(manifests, wanted) if memo is not None else {}
    new = {m: _project(io, m, str(state.table), wanted) for m in manifests if m.path not in known}
    if memo is not None:
        memo.put(new, wanted)
    return [known[m.path] if m.path in known else new[m] for m in manifests]


def _for_table(memo: ManifestMemo | None, state: TableState) -> ManifestMemo | None:
    return memo if memo is not None and memo.is_for(state.manifests) else None


def _project(io: FileIO, manifest: Manifest, table: str, wanted: Wanted) -> Projection:
    more = ((PATH,) if wanted.paths else ()) + ((FILE_SEQUENCE_NUMBER,) if wanted.added else ())
    order = wanted.order
    part = read_live_entries(io, manifest, table, (*more, *(_SORTING if order else ())), _measured(order))
    return Projection(
        part.without_more(file_layout(order, *part.more[len(more) :]) if order else None),
        _added(part, manifest, part.more[len(more) - 1]) if wanted.added else None,
        path_digests(part.more[0]) if wanted.paths else None,
    )


def _named(deletes: LiveEntries) -> list[str | None]:
    """Returns the data file that each delete file names, None if it names none or several."""
    columns = zip(deletes.kind.tolist(), *deletes.more, strict=True)
    return [
        only_path(lower, upper) if own is None and kind == POSITION_DELETES else own
        for kind, own, lower, upper in columns
    ]


_ROW_IDS_SINCE = 3
_FIRST_EXTRA = 6
"""The number of columns of an entry that are read in any case."""
_SORTING = (SORT_ORDER_ID, LOWER_BOUNDS, UPPER_BOUNDS)


def _measured(order: LayoutOrder | None) -> tuple[int, ...]:
    return tuple(c.field_id for c in order.measured) if order else ()


def _unreferenced(deletes: LiveEntries, named: list[str | None], live: Mapping[str, int]) -> Mask:
    """Marks delete files that name a data file that is not live, or is newer than the delete."""
    never = 1 << 63
    pairs = zip(named, deletes.sequence_number.tolist(), strict=True)
    return np.array([path is not None and live.get(path, never) > number for path, number in pairs], bool)


def _added(data: LiveEntries, manifest: Manifest, numbers: Sequence[int | None]) -> Integers:
    """Returns the sequence number of the commit that added each file."""
    inherits = data.snapshot_id == manifest.added_snapshot_id
    own = [
        manifest.sequence_number if n is None and i else n or 0
        for n, i in zip(numbers, inherits, strict=True)
    ]
    return np.maximum(data.sequence_number, np.array(own, np.int64))


def live_files(
    io: FileIO,
    state: TableState,
    partitions: Collection[PartitionKey],
    memo: ManifestMemo | None = None,
) -> tuple[LiveFile, ...]:
    """Returns the live files of the partitions with these keys, and all global equality deletes. Data
    files have their ranges if the state has an order. A data manifest is not opened if the memo shows that it has no
    file of these partitions. Bounds in manifest lists are not trusted: other writers state them.

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
    differently counts as changed. Also if its first row id differs: an upgrade to format v3 gives row ids."""
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
    without = _without(state, live, keys, memo)
    return [f for m in live if m.path not in without for f in _files(io, state, m, keys)]


def _without(
    state: TableState, manifests: Iterable[Manifest], keys: frozenset[PartitionKey], memo: ManifestMemo | None
) -> set[str]:
    """Returns the paths of data manifests that have no file of these partitions, as far as the memo knows."""
    memo = _for_table(memo, state)
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
    """Returns which paths are live data files, or delete files, in any retained snapshot. The newest
    snapshots are read first.

    The files are newer than the snapshot `since`. So neither it nor its ancestors have them, and no manifest
    that it lists. If it is not retained, all snapshots are read.
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


def _live(state: TableState, *, deletes: bool) -> Iterator[Manifest]:
    return (m for m in state.manifests if m.is_deletes is deletes and has_live_files(m))


def _files(
    io: FileIO, state: TableState, manifest: Manifest, partitions: frozenset[PartitionKey]
) -> Iterator[LiveFile]:
    spec, order = state.specs[manifest.spec_id], state.order
    deletes = (REFERENCED_FILE, CONTENT_OFFSET, EQUALITY_IDS) if manifest.is_deletes else (None,) * 3
    columns_of = (DELETE_FILE_PATH,) if manifest.is_deletes else _measured(order)
    bounds = (LOWER_BOUNDS, UPPER_BOUNDS) if columns_of else (None, None)
    has_row_ids = state.format_version >= _ROW_IDS_SINCE and not manifest.is_deletes
    row_id = FIRST_ROW_ID if has_row_ids else None
    extra = (PATH, FORMAT, SORT_ORDER_ID, FILE_SEQUENCE_NUMBER, row_id, *deletes, *bounds)
    asked = tuple(i for i in extra if i is not None)
    entries = read_live_entries(io, manifest, str(state.table), asked, columns_of)
    more = iter(entries.more)
    nothing: Column = [None] * len(entries)
    keys = [encode_partition(spec, values, state.first_spec_id) for values in entries.partitions]  # type: ignore[arg-type]
    columns = (
        *(entries.partition.tolist(), entries.kind.tolist(), entries.records.tolist()),
        *(entries.size_bytes.tolist(), entries.sequence_number.tolist()),
        (entries.snapshot_id == manifest.added_snapshot_id).tolist(),
        *(nothing if i is None else next(more) for i in extra),
    )
    row_ids: Sequence[int | None] = [None] * len(entries)
    if has_row_ids:
        own_ids = columns[_FIRST_EXTRA + extra.index(FIRST_ROW_ID)]
        row_ids = first_row_ids(own_ids, entries.records.tolist(), manifest.first_row_id)
    for first_row_id, (at, kind, records, size, number, added, path, form, sort_order_id, own, *rest) in zip(
        row_ids, zip(*columns, strict=True), strict=True
    ):
        _, referenced, offset, equality_ids, lower, upper = rest
        key, of = keys[at], KINDS[kind]
        everywhere = of is FileKind.EQUALITY_DELETES and spec.is_unpartitioned
        if key not in partitions and not everywhere:
            continue
        if of is FileKind.POSITION_DELETES and referenced is None:
            referenced = only_path(lower, upper)
        yield LiveFile(
            path=path,
            kind=of,
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
            ranges=ranges_of(order.measured, lower, upper) if order and of is FileKind.DATA else (),
            first_row_id=first_row_id,
        )
