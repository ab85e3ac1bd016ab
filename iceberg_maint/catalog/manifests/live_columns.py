"""Reads the live entries of a pinned snapshot as columns, to measure the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from pyiceberg.io import FileIO

from iceberg_maint.catalog.manifests.column_overlap import file_layout, measured_ids
from iceberg_maint.catalog.manifests.measure import Columns, Mask, References, to_columns
from iceberg_maint.catalog.manifests.memo import ManifestMemo, memo_for
from iceberg_maint.catalog.manifests.projection import Projection, Wanted, numbers_of, path_digests
from iceberg_maint.catalog.manifests.reader import (
    DELETE_FILE_PATH,
    FILE_SEQUENCE_NUMBER,
    LOWER_BOUNDS,
    PATH,
    POSITION_DELETES,
    REFERENCED_FILE,
    SORT_ORDER_ID,
    UPPER_BOUNDS,
    Integers,
    LiveEntries,
    has_live_files,
    only_path,
    read_live_entries,
)
from iceberg_maint.core.model.table_state import Manifest, TableState

_SORTING = (SORT_ORDER_ID, LOWER_BOUNDS, UPPER_BOUNDS)


def read_columns(io: FileIO, state: TableState, memo: ManifestMemo | None = None) -> Columns:
    """Returns all live entries as columns, with their layout if the state has an order. Raises
    UnreadableTableError.

    The paths of data files are read only if deletes name files, and only their digests are kept. The sequence
    numbers of the adding commits are read only if some position deletes name no file. Data manifests that the
    memo has are not opened.
    """
    table = str(state.table)
    fields = (REFERENCED_FILE, LOWER_BOUNDS, UPPER_BOUNDS)
    manifests = _live_manifests(state, deletes=True)
    deletes = [read_live_entries(io, m, table, fields, (DELETE_FILE_PATH,)) for m in manifests]
    named = [_named_files(part) for part in deletes]
    named_paths = {path for paths in named for path in paths if path is not None}
    numbers = {path: number for number, path in enumerate(named_paths)}
    some_name_no_file = any(
        path is None and kind == POSITION_DELETES
        for part, paths in zip(deletes, named, strict=True)
        for path, kind in zip(paths, part.kind.tolist(), strict=True)
    )
    data = _project_all(io, state, Wanted(bool(numbers), some_name_no_file, state.order), memo)
    live: dict[str, int] = {}
    if numbers:
        digests = path_digests(numbers)
        by_digest = {digest.tobytes(): path for digest, path in zip(digests, numbers, strict=True)}
        live = numbers_of(data, by_digest)
    references = [
        References(
            np.array([-1 if path is None else numbers[path] for path in paths], np.int64),
            _unreferenced(part, paths, live),
        )
        for part, paths in zip(deletes, named, strict=True)
    ]
    no_references = [References.none(len(part.entries)) for part in data]
    added_by_deletes = [part.sequence_number for part in deletes]
    added_by_data = [part.entries.sequence_number if part.added is None else part.added for part in data]
    return to_columns(
        state,
        [p.without_more() for p in deletes] + [p.entries for p in data],
        [*references, *no_references],
        [*added_by_deletes, *added_by_data],
    )


def _project_all(
    io: FileIO, state: TableState, wanted: Wanted, memo: ManifestMemo | None
) -> list[Projection]:
    """Returns the projections of the data manifests, in the order of the manifest list."""
    manifests = list(_live_manifests(state, deletes=False))
    memo = memo_for(memo, state.manifests)
    known = memo.get(manifests, wanted) if memo is not None else {}
    new = {m: _project(io, m, str(state.table), wanted) for m in manifests if m.path not in known}
    if memo is not None:
        memo.put(new, wanted)
    return [known[m.path] if m.path in known else new[m] for m in manifests]


def _project(io: FileIO, manifest: Manifest, table: str, wanted: Wanted) -> Projection:
    more = ((PATH,) if wanted.paths else ()) + ((FILE_SEQUENCE_NUMBER,) if wanted.added else ())
    order = wanted.order
    part = read_live_entries(io, manifest, table, (*more, *(_SORTING if order else ())), measured_ids(order))
    return Projection(
        part.without_more(file_layout(order, *part.more[len(more) :]) if order else None),
        _added(part, manifest, part.more[len(more) - 1]) if wanted.added else None,
        path_digests(part.more[0]) if wanted.paths else None,
    )


def _named_files(deletes: LiveEntries) -> list[str | None]:
    """Returns the data file that each delete file names, None if it names none or several."""
    columns = zip(deletes.kind.tolist(), *deletes.more, strict=True)
    return [
        only_path(lower, upper) if own is None and kind == POSITION_DELETES else own
        for kind, own, lower, upper in columns
    ]


def _unreferenced(deletes: LiveEntries, named: list[str | None], live: Mapping[str, int]) -> Mask:
    """Which delete files name a data file that is not live, or is newer than the delete file."""
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


def _live_manifests(state: TableState, *, deletes: bool) -> Iterator[Manifest]:
    return (m for m in state.manifests if m.is_deletes is deletes and has_live_files(m))
