"""The live entries of a pinned snapshot: as columns to measure, as values to plan with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

import numpy as np
from pyiceberg.io import FileIO

from iceberg_maint.catalog.manifests import (
    CONTENT_OFFSET,
    EQUALITY_IDS,
    FILE_SEQUENCE_NUMBER,
    FORMAT,
    KINDS,
    LOWER_BOUNDS,
    PATH,
    REFERENCED_FILE,
    SORT_ORDER_ID,
    UPPER_BOUNDS,
    LiveEntries,
    has_live_files,
    only_path,
    read_live_entries,
)
from iceberg_maint.catalog.measure import Columns, Mask, to_columns
from iceberg_maint.catalog.metadata import check_manifest_list
from iceberg_maint.core.partition import encode_partition
from iceberg_maint.core.state import FileKind, LiveFile, Manifest, TableState
from iceberg_maint.errors import RefusedError


def read_columns(io: FileIO, state: TableState) -> Columns:
    """All live entries as columns; raises UnreadableTableError.

    Paths of data files are looked at only where deletes name files, and are not kept.
    """
    table = str(state.table)
    deletes = [read_live_entries(io, m, table, (REFERENCED_FILE,)) for m in _live(state, deletes=True)]
    named = {path for part in deletes for path in part.more[0] if path is not None}
    live: dict[str, int] = {}
    data: list[LiveEntries] = []
    for manifest in _live(state, deletes=False):
        part = read_live_entries(io, manifest, table, (PATH,) if named else ())
        if named:
            numbers = part.sequence_number.tolist()
            live |= {p: n for p, n in zip(part.more[0], numbers, strict=True) if p in named}
        data.append(part.without_more())
    masks = [_unreferenced(part, live) for part in deletes]
    none = [np.zeros(len(part), bool) for part in data]
    return to_columns(state, [*deletes, *data], [*masks, *none])


def _unreferenced(deletes: LiveEntries, live: Mapping[str, int]) -> Mask:
    """Marks delete files that name a data file which is not live, or is newer than they are."""
    never = 1 << 63
    pairs = zip(deletes.more[0], deletes.sequence_number.tolist(), strict=True)
    return np.array([path is not None and live.get(path, never) > number for path, number in pairs], bool)


def live_files(io: FileIO, state: TableState, partitions: Collection[str]) -> tuple[LiveFile, ...]:
    """Live files of the partitions with these keys, and all global equality deletes.

    Raises RefusedError ICM-120 when a data file is listed twice.
    """
    found: list[LiveFile] = []
    wanted = frozenset(partitions)
    for manifest in state.manifests:
        if has_live_files(manifest):
            found += _files(io, state, manifest, wanted)
    seen: set[str] = set()
    for file in found:
        if file.kind is FileKind.DATA and file.path in seen:
            raise RefusedError(
                "ICM-120",
                f"{state.table}: data file {file.path} is referenced twice; rewriting it would change "
                "the number of rows.",
                "remove one of the two references first.",
            )
        seen.add(file.path)
    return tuple(found)


def find_live(
    read_manifests: Callable[[str], tuple[Manifest, ...]],
    read_paths: Callable[[Manifest], Collection[str]],
    state: TableState,
    paths: Collection[str],
    *,
    deletes: bool,
) -> frozenset[str]:
    """Which paths are live data files, or delete files, in any retained snapshot, newest snapshots
    first."""
    wanted, found, seen = frozenset(paths), set[str](), set[str]()
    for snapshot in reversed(state.snapshots):
        if wanted <= found:
            break
        for manifest in read_manifests(check_manifest_list(state.table, snapshot)):
            if manifest.is_deletes is not deletes or manifest.path in seen or not has_live_files(manifest):
                continue
            seen.add(manifest.path)
            found |= wanted.intersection(read_paths(manifest))
    return frozenset(found)


def _live(state: TableState, *, deletes: bool) -> Iterator[Manifest]:
    return (m for m in state.manifests if m.is_deletes is deletes and has_live_files(m))


def _files(
    io: FileIO, state: TableState, manifest: Manifest, partitions: frozenset[str]
) -> Iterator[LiveFile]:
    spec = state.specs[manifest.spec_id]
    of_deletes = (REFERENCED_FILE, CONTENT_OFFSET, EQUALITY_IDS, LOWER_BOUNDS, UPPER_BOUNDS)
    deletes = of_deletes if manifest.is_deletes else ()
    asked = (PATH, FORMAT, SORT_ORDER_ID, FILE_SEQUENCE_NUMBER, *deletes)
    entries = read_live_entries(io, manifest, str(state.table), asked)
    keys = [encode_partition(spec, values, state.first_spec_id) for values in entries.partitions]  # type: ignore[arg-type]
    columns = (
        *(entries.partition.tolist(), entries.kind.tolist(), entries.records.tolist()),
        *(entries.size_bytes.tolist(), entries.sequence_number.tolist()),
        *((entries.snapshot_id == manifest.added_snapshot_id).tolist(), *entries.more),
    )
    for at, kind, records, size, number, added, path, form, sort_order_id, own, *rest in zip(
        *columns, strict=True
    ):
        key, of = keys[at], KINDS[kind]
        everywhere = of is FileKind.EQUALITY_DELETES and spec.is_unpartitioned
        if key not in partitions and not everywhere:
            continue
        referenced, offset, equality_ids, lower, upper = rest or (None, None, None, None, None)
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
        )
