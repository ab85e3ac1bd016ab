"""Walks from the catalog's pointer to every file that a table's metadata reference."""

from __future__ import annotations

import logging
import random
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from pyiceberg.manifest import ManifestFile
from pyiceberg.manifest import read_manifest_list as read_manifest_list_again

from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.catalog.manifests.avro import check_bounds_of_pyiceberg
from iceberg_maint.catalog.manifests.avro_values import AvroError
from iceberg_maint.catalog.manifests.entries import pending_files
from iceberg_maint.catalog.manifests.metadata_file import read_bytes, unreadable
from iceberg_maint.catalog.manifests.reader import (
    FILE_BYTES,
    KINDS,
    PATH,
    check_manifest_list,
    has_live_files,
    read_live_entries,
    read_manifest_list,
)
from iceberg_maint.catalog.table_metadata import document_of, parse_metadata
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import Manifest, TableState
from iceberg_maint.core.outcomes.failures import is_of_process
from iceberg_maint.core.removal.orphan_rules import MetadataLog
from iceberg_maint.core.removal.released_file_rules import NamedFile
from iceberg_maint.errors import IcebergMaintError, RefusedError, UnknownTableError, UnreadableTableError

_log = logging.getLogger(__name__)
_LOGS_FOLLOWED = 100
"""The number of old metadata files whose logs are read: 10 000 versions by Iceberg's default log."""


class MetadataWalk:
    """The files that one table references: the metadata file and its log, statistics and partition
    statistics files, and the manifest lists, manifests and live files of all retained snapshots.

    The older snapshots that still contain a file reference it, although a newer manifest lists it as
    DELETED.
    """

    def __init__(self, catalog: PyIcebergCatalog, table: TableId, table_uuid: str) -> None:
        self._catalog, self._table, self._uuid = catalog, table, table_uuid
        self._read: set[str] = set()
        self._heads: tuple[str, ...] = ()
        self._by_fixed: dict[int, str] = {}

    def metadata_location(self) -> str:
        """Returns the catalog's current pointer. Raises UnknownTableError ICM-126."""
        pointer = self._catalog.pointer(self._table)
        if pointer is None:
            raise UnknownTableError(
                "ICM-126",
                f'"{self._table}" is no longer in its catalog. Nothing was removed.',
                "none is needed unless the table was dropped by mistake.",
            )
        return pointer

    def paths(self) -> Iterator[str]:
        """Yields every file that the current metadata reference. Manifests that were read before are
        skipped.

        Raises UnreadableTableError ICM-101, RefusedError ICM-129.
        """
        io = self._catalog.io_of(self._table)
        state, document = self._current()
        heads = {state.snapshot and state.snapshot.snapshot_id, *(r.snapshot_id for r in state.refs)}
        self._heads = tuple(s.manifest_list for s in state.snapshots if s.snapshot_id in heads)
        self._by_fixed = {
            spec_id: field.name
            for spec_id, spec in state.specs.items()
            for field in spec.fields
            if field.result_type.startswith("fixed[")
        }
        yield state.metadata_location
        yield from named_files(document)
        for snapshot in state.snapshots:
            manifest_list = check_manifest_list(self._table, snapshot)
            yield manifest_list
            if manifest_list in self._read:
                continue
            for manifest in read_manifest_list(io, manifest_list):
                if manifest.path in self._read:
                    continue
                yield manifest.path
                if has_live_files(manifest):
                    yield from read_live_entries(io, manifest, str(self._table), (PATH,)).more[0]
                self._read.add(manifest.path)
            self._read.add(manifest_list)

    def names(self) -> Iterator[str]:
        """Yields every file that the current metadata name without a manifest being opened; see
        `ports.storage.Reachability`."""
        io = self._catalog.io_of(self._table)
        state, document = self._current()
        yield from (state.metadata_location, *named_files(document))
        for manifest_list in (check_manifest_list(self._table, s) for s in state.snapshots):
            yield manifest_list
            yield from (manifest.path for manifest in read_manifest_list(io, manifest_list))

    def manifests(self, manifest_list: str) -> Sequence[Manifest]:
        """Reads a manifest list of a removed snapshot; see `ports.storage.Reachability`."""
        try:
            return read_manifest_list(self._catalog.io_of(self._table), manifest_list)
        except UnreadableTableError as why:
            self._skip(why)
            return ()

    def files(self, manifest: Manifest) -> Iterator[NamedFile]:
        """Reads a manifest of removed snapshots; see `ports.storage.Reachability`."""
        if not has_live_files(manifest):
            return
        try:
            io = self._catalog.io_of(self._table)
            entries = read_live_entries(io, manifest, str(self._table), (PATH, FILE_BYTES))
        except UnreadableTableError as why:
            self._skip(why)
            return
        for path, kind, size_bytes in zip(
            entries.more[0], entries.kind.tolist(), entries.more[1], strict=True
        ):
            yield NamedFile(path, KINDS[kind], size_bytes)

    def _skip(self, why: UnreadableTableError) -> None:
        """Logs that a file of removed snapshots is missing or damaged. Raises an error of another cause,
        which may end by itself."""
        if why.__cause__ is not None and not isinstance(why.__cause__, FileNotFoundError | AvroError):
            raise why
        _log.warning("%s: files of a removed snapshot wait for an orphan scan: %s", self._table, why)

    def log(self) -> MetadataLog:
        """Returns the catalog's pointer and the metadata log that it names, read now, with the logs of the
        oldest versions. If one of these cannot be read or there are more, the log is not complete.

        Raises UnknownTableError ICM-126, UnreadableTableError ICM-101, RefusedError ICM-129.
        """
        state, document = self._current()
        entries, complete = self._earlier(document)
        return MetadataLog(
            state.metadata_location,
            state.last_sequence_number,
            state.last_updated_ms,
            min(entries.values(), default=state.last_updated_ms),
            tuple(entries),
            complete,
        )

    def _earlier(self, document: dict[str, Any]) -> tuple[dict[str, int], bool]:
        """Returns the time of each earlier version by its path, and whether these are all versions."""
        io = self._catalog.io_of(self._table)
        entries = {e["metadata-file"]: int(e["timestamp-ms"]) for e in document.get("metadata-log") or ()}
        oldest = next(iter(entries), None)
        for _ in range(_LOGS_FOLLOWED):
            if oldest is None:
                return entries, True
            try:
                data = read_bytes(io, oldest, f"{self._table}: metadata file")
                log = document_of(data).get("metadata-log") or ()
                earlier = {e["metadata-file"]: int(e["timestamp-ms"]) for e in log}
            except UnreadableTableError:
                return entries, False
            except IcebergMaintError:
                raise
            except Exception as error:  # zlib, json and each wrong type raise their own errors
                if is_of_process(error):
                    raise
                return entries, False
            earlier = {path: ms for path, ms in earlier.items() if path not in entries}
            entries |= earlier
            oldest = next(iter(earlier), None)
        return entries, oldest is None

    def _current(self) -> tuple[TableState, dict[str, Any]]:
        location, io = self.metadata_location(), self._catalog.io_of(self._table)
        data = read_bytes(io, location, f"{self._table}: metadata file")
        state = parse_metadata(self._table, location, data)
        if state.uuid != self._uuid:
            raise RefusedError(
                "ICM-129",
                f"{self._table} was replaced (uuid {self._uuid} → {state.uuid}). No file was removed.",
                "none is needed; the next run checks the new table.",
            )
        return state, document_of(data)

    def pending(self, location: str, data: bytes, *, certain: bool) -> Sequence[str] | None:
        """Reads a pending manifest; see `ports.storage.Reachability`."""
        return pending_files(location, data, certain=certain)

    def second_opinion(self, most: int) -> Iterator[str]:
        """Yields files of the heads of the branches and tags that `paths` walked last, decoded by
        PyIceberg instead. It reads manifests in random order until they list `most` files.

        Raises UnreadableTableError ICM-101.
        """
        io = self._catalog.io_of(self._table)
        check_bounds_of_pyiceberg()
        try:
            manifests: dict[str, ManifestFile] = {}
            for manifest_list in self._heads:
                yield manifest_list
                manifest_files = read_manifest_list_again(io.new_input(manifest_list))
                manifests |= {m.manifest_path: m for m in manifest_files}
            self._refuse_fixed({m.partition_spec_id for m in manifests.values()})
            yield from manifests
            remaining = most
            for path in random.sample(sorted(manifests), len(manifests)):
                for entry in manifests[path].fetch_manifest_entry(io, discard_deleted=True):
                    yield entry.data_file.file_path
                    remaining -= 1
                if remaining <= 0:
                    return
        except RefusedError:
            raise
        except Exception as error:  # each file system and decoder raises its own errors
            raise unreadable(
                f"{self._table}: a second decoder cannot read manifests that the first one read: {error}. Nothing was removed.",
                error,
                "report this error to the maintainers of iceberg-maint.",
            ) from error

    def _refuse_fixed(self, spec_ids: Collection[int]) -> None:
        """Raises RefusedError ICM-101 if PyIceberg would read a fixed partition value of Iceberg's Java writer."""
        for spec_id in sorted(self._by_fixed.keys() & set(spec_ids)):
            raise RefusedError(
                "ICM-101",
                f"{self._table}: partition field {self._by_fixed[spec_id]} has a fixed type, and the second decoder of an "
                "orphan scan, PyIceberg, cannot read its manifests (apache/iceberg#17501). Nothing was removed.",
                "partition the table by another field and rewrite its files, or turn remove_orphan_files off for it.",
            )


def named_files(document: dict[str, Any]) -> Iterator[str]:
    """Yields the metadata log, statistics files and partition statistics files (spec: Table Metadata)."""
    for entry in document.get("metadata-log") or ():
        yield entry["metadata-file"]
    for key in ("statistics", "partition-statistics"):
        for entry in document.get(key) or ():
            yield entry["statistics-path"]
