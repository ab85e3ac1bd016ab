"""The lake's files as a reader of manifests sees them: through the product's reader and its memo, which is damaged on purpose.

The product's code projects, keeps, looks up, skips and measures. Only the decoding of Avro is replaced: the entries of a
manifest come from the lake. What comes out is compared with a look at the files one by one.
"""

from __future__ import annotations

import atexit
import functools
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from iceberg_maint.catalog.manifests import live_columns, live_files
from iceberg_maint.catalog.manifests.measure import measure
from iceberg_maint.catalog.manifests.memo import MAX_BYTES, ManifestMemo
from iceberg_maint.catalog.manifests.reader import (
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
    Integers,
    LiveEntries,
)
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.partition_key import FIRST_SPEC_ID, decode_partition
from iceberg_maint.core.model.table_state import FileKind, LiveFile, Manifest, Snapshot, TableState
from iceberg_maint.core.policy.data import RewriteDataFilesPolicy
from iceberg_maint_tests.support.core.values import BY_P
from iceberg_maint_tests.support.damaged_memo import damage
from iceberg_maint_tests.support.fakes.catalog import FakeTable, measure_files

T = TypeVar("T")

DAMAGED_LOOKS = 0.1
_UNKNOWN_ID = 0
"""An entry that names no retained snapshot has the time of its sequence number, as in `support.fakes.catalog`."""
_FIELDS: dict[int, Callable[[LiveFile], Any]] = {
    PATH: lambda f: f.path,
    FORMAT: lambda f: f.file_format,
    SORT_ORDER_ID: lambda f: f.sort_order_id,
    FILE_SEQUENCE_NUMBER: lambda f: f.file_sequence_number,
    REFERENCED_FILE: lambda f: f.referenced_data_file,
    CONTENT_OFFSET: lambda f: f.content_offset,
    EQUALITY_IDS: lambda f: f.equality_ids,
    LOWER_BOUNDS: lambda _: None,
    UPPER_BOUNDS: lambda _: None,
}


class LakeManifests:
    """Manifests of the lake's snapshots, and the memo of the machine that all processes share. `found` counts, and
    `fail` raises for a broken invariant. What happens to the memo is drawn from a generator of its own: the life of a world is
    the same with any memo."""

    def __init__(self, seed: int, found: Counter[str], fail: Callable[[str, str], None]) -> None:
        self._choose = random.Random(f"{seed} memo")
        self._found, self._fail = found, fail
        self._by_content: dict[tuple[LiveFile, ...], Manifest] = {}
        self._content: dict[Manifest, tuple[LiveFile, ...]] = {}
        self._path = _folder() / "manifests.db"
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)
        self._memo = ManifestMemo(self._path, MAX_BYTES, min_files=1)

    def measure(
        self, state: TableState, files: tuple[LiveFile, ...], policy: RewriteDataFilesPolicy
    ) -> Measured:
        """Measures through manifests and memo. Fails if the files give other numbers."""

        def look() -> Measured:
            columns = live_columns.read_columns(self, self._listed(state, files), self._memo)  # type: ignore[arg-type]
            return measure(state, columns, policy)

        return self._compared(look, measure_files(FakeTable(state, files), policy), state)

    def live_files(
        self, state: TableState, files: tuple[LiveFile, ...], partitions: Collection[str]
    ) -> tuple[LiveFile, ...]:
        """Reads the live files of some partitions through manifests and memo, in the order of `files`. Fails if
        `files` has others."""
        place = {file.path: at for at, file in enumerate(files)}

        def look() -> tuple[LiveFile, ...]:
            read = live_files.live_files(self, self._listed(state, files), partitions, self._memo)  # type: ignore[arg-type]
            return tuple(sorted(read, key=lambda f: place.get(f.path, -1)))

        return self._compared(look, tuple(f for f in files if f.partition in partitions), state)

    def _compared(self, look: Callable[[], T], expected: T, state: TableState) -> T:
        if self._choose.random() < DAMAGED_LOOKS:
            way = damage(self._path, self._choose)
            self._found[f"memo damaged: {way}"] += bool(way)
        result: T | str
        with self._as_manifests():
            try:
                result = look()
            except Exception as why:  # noqa: BLE001 - no content of a memo may end a look
                result = repr(why)
        self._found["looks through the memo"] += 1
        if result != expected:
            self._fail("Memo", f"{state.table} is read as {result}, and is {expected}")
        return expected

    @contextmanager
    def _as_manifests(self) -> Iterator[None]:
        real = live_files.read_live_entries
        live_columns.read_live_entries = live_files.read_live_entries = self._entries  # type: ignore[assignment]
        try:
            yield
        finally:
            live_columns.read_live_entries = live_files.read_live_entries = real

    def _entries(
        self,
        _io: object,
        manifest: Manifest,
        _table: str,
        more: tuple[int, ...] = (),
        _bounds_of: tuple[int, ...] = (),
    ) -> LiveEntries:
        """The entries as `read_live_entries` returns them."""
        files = self._content[manifest]
        if not manifest.is_deletes:
            self._found["manifests read"] += 1
        keys = sorted({f.partition for f in files})
        return LiveEntries(
            spec_id=manifest.spec_id,
            partitions=tuple(_values(key) for key in keys),
            partition=_integers(keys.index(f.partition) for f in files),
            kind=_integers(KINDS.index(f.kind) for f in files),
            records=_integers(f.record_count for f in files),
            size_bytes=_integers(f.size_bytes for f in files),
            sequence_number=_integers(f.data_sequence_number for f in files),
            snapshot_id=_integers(_UNKNOWN_ID for _ in files),
            more=tuple([_FIELDS[field](f) for f in files] for field in more),
        )

    def _listed(self, state: TableState, files: tuple[LiveFile, ...]) -> TableState:
        """The state with the manifests of its snapshot: the files of one commit and kind are in one."""
        if state.snapshot is None:
            return replace(state, manifests=())
        groups: dict[tuple[bool, int], list[LiveFile]] = {}
        for file in files:
            groups.setdefault((file.kind is not FileKind.DATA, file.file_sequence_number or 0), []).append(
                file
            )
        listed = tuple(self._manifest(state.snapshot, *key, tuple(of)) for key, of in groups.items())
        self._found["manifests listed"] += sum(not m.is_deletes for m in listed)
        return replace(state, manifests=listed)

    def _manifest(
        self, snapshot: Snapshot, is_deletes: bool, number: int, files: tuple[LiveFile, ...]
    ) -> Manifest:
        """The manifest of these files, written by the first snapshot that is seen with them. Tables, and catalogs that have
        the same table, write other manifests to the same path."""
        known = self._by_content.get(files)
        if known is None:
            known = Manifest(
                path=f"manifest-{number}-{len(files)}-{'deletes' if is_deletes else 'data'}",
                length_bytes=100,
                is_deletes=is_deletes,
                spec_id=BY_P.spec_id,
                sequence_number=snapshot.sequence_number,
                min_sequence_number=min(f.data_sequence_number for f in files),
                added_snapshot_id=snapshot.snapshot_id,
                added_files=len(files),
                existing_files=0,
                deleted_files=0,
                added_rows=sum(f.record_count for f in files),
                existing_rows=0,
            )
            self._by_content[files] = known
            self._content[known] = files
        return known


def _integers(values: Iterable[int]) -> Integers:
    return np.array(list(values), np.int64)


def _values(key: str) -> tuple[object, ...]:
    return tuple(decode_partition(key, {BY_P.spec_id: BY_P}, FIRST_SPEC_ID)[1])


@functools.cache
def _folder() -> Path:
    """The one folder of all worlds, which take turns; deleted when the process ends. In memory where it can be: nothing here
    is about a disk, and SQLite waits for it at every close."""
    in_memory = Path("/dev/shm")
    folder = tempfile.mkdtemp(prefix="simulation-", dir=in_memory if in_memory.is_dir() else None)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
