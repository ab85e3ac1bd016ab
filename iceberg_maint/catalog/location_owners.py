"""The locations that every table of every configured catalog owns, read from its metadata file."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.catalog.approved_io import approved_of, open_store
from iceberg_maint.catalog.manifests.metadata_file import read_bytes
from iceberg_maint.catalog.reachable_files import named_files
from iceberg_maint.catalog.table_metadata import document_of
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.location import LocationOwner, location_owner
from iceberg_maint.core.outcomes.failures import is_of_process
from iceberg_maint.errors import IcebergMaintError, RefusedError, UnknownTableError
from iceberg_maint.ports.ledger import Registry
from iceberg_maint.ports.storage import Store
from iceberg_maint.ports.stored import StoredLocationOwner

_log = logging.getLogger(__name__)

_TRIES = 3
_MOST_READ = 8
"""If more tables have changed, another process may have read them: the ledger is asked first."""
_CONFIRMED_MS = 24 * 3600 * 1000
"""How often the ledger stores that an owner is still current."""
_MOST_LISTED = 100_000
"""Files in the folder of a metadata file. More are not searched for an earlier one."""


class FleetLocationOwners:
    """The owners of all tables. One metadata file is read per table, and again only after the table's
    pointer has changed. The ledger keeps the owners.

    This object remembers what it has read, so that a scan of each of many tables does not read the owners of all
    from the ledger again. The catalog is asked for all tables and pointers each time."""

    def __init__(self, catalogs: Mapping[str, PyIcebergCatalog], ledger: Registry) -> None:
        self._catalogs = catalogs
        self._ledger = ledger
        self._remembered: dict[str, dict[TableId, StoredLocationOwner]] = {}

    def others(self, table: TableId) -> tuple[LocationOwner, ...]:
        """Returns the current owners of all tables except this one. A table that cannot be read has its last owner,
        with the time until which it was current.

        Raises ConfigurationError ICM-104 for a catalog that does not answer. Raises RefusedError ICM-111 for a table
        that cannot be read and has neither been read nor has an owner by `_first_claim`, or whose metadata file is
        outside the locations of its last owner: its files may be anywhere.
        """
        return tuple(
            owner
            for name, catalog in self._catalogs.items()
            for owner in self._of_catalog(name, catalog, table)
        )

    def _of_catalog(
        self, catalog_name: str, catalog: PyIcebergCatalog, table: TableId
    ) -> list[LocationOwner]:
        # The pointers are current at a time after this one.
        now_ms = self._ledger.now_ms()
        tables = catalog.tables()
        names = [t for t in tables if t != table]
        pointers = catalog.pointers(names)
        known = self._known(catalog_name, pointers)
        owners, changed = [], {}
        try:
            for name in names:
                pointer, stored = pointers.get(name), known.get(name)
                if stored is not None and pointer == stored.pointer:
                    owners.append(stored.owner)
                    if now_ms - stored.current_ms > _CONFIRMED_MS:
                        changed[name] = replace(stored, current_ms=now_ms)
                    continue
                try:
                    pointer_and_owner = self._read(catalog, name, table)
                except RefusedError as error:
                    # Another process may have read a later file of the table, with other locations.
                    stored = self._ledger.location_owners(catalog_name).get(name)
                    if stored is None and pointer is not None:
                        owners.append(_first_claim(catalog, name, pointer, error))
                    else:
                        owners.append(_last_owner(pointer, stored, error))
                    continue
                if pointer_and_owner is not None:
                    changed[name] = StoredLocationOwner(*pointer_and_owner, now_ms)
                    owners.append(pointer_and_owner[1])
                elif stored is not None and name in catalog.tables():
                    stored = self._ledger.location_owners(catalog_name).get(name, stored)
                    # The catalog lists the table and answers that it does not exist: it was not dropped.
                    _log.warning(
                        "%s is listed and cannot be loaded. The scan keeps the files in its last known locations.",
                        name,
                    )
                    owners.append(replace(stored.owner, current_until_ms=stored.current_ms))
        finally:
            dropped = known.keys() - set(tables)
            if changed or dropped:
                self._ledger.put_location_owners(catalog_name, changed, dropped)
                remaining = {name: stored for name, stored in known.items() if name not in dropped}
                self._remembered[catalog_name] = remaining | changed
        return owners

    def _known(
        self, catalog_name: str, pointers: Mapping[TableId, str]
    ) -> Mapping[TableId, StoredLocationOwner]:
        """Returns the last owners of the catalog's tables. An owner follows from the file at its pointer, which never
        changes, so one that was read before still holds for that pointer."""
        known = self._remembered.get(catalog_name, {})
        changed = sum(1 for t, at in pointers.items() if (last := known.get(t)) is None or last.pointer != at)
        if changed > _MOST_READ or catalog_name not in self._remembered:
            known = self._remembered[catalog_name] = dict(self._ledger.location_owners(catalog_name))
        return known

    def _read(
        self, catalog: PyIcebergCatalog, name: TableId, table: TableId
    ) -> tuple[str, LocationOwner] | None:
        """Returns pointer and owner of a table; None if it has been dropped."""
        tried: set[str] = set()
        while True:
            pointer = ""
            try:
                pointer, data = catalog.metadata_file(name)
                return pointer, _owner(name, pointer, data)
            except UnknownTableError:
                return None
            except Exception as error:  # zlib, json and each wrong type in it raise their own errors
                if is_of_process(error):
                    raise
                # The table may have been committed to and cleaned up, or dropped, since the lookup.
                if len(tried) == _TRIES or pointer in tried:
                    raise RefusedError(
                        "ICM-111",
                        f"{name} cannot be read, so files below {table} may belong to it: {error}.",
                        f"repair {name}, drop it from its catalog, or grant the right to read it.",
                    ) from error
                tried.add(pointer)


def _last_owner(
    pointer: str | None, stored: StoredLocationOwner | None, error: RefusedError
) -> LocationOwner:
    """Returns the last owner of a table that cannot be read. Raises `error` if its files may be elsewhere: it was
    never read, the catalog names no metadata file, or the table has moved since."""
    folder = (pointer or "").rpartition("/")[0]
    if stored is None or not any(
        f"{folder}/".startswith(f"{location.rstrip('/')}/") for location in stored.owner.locations
    ):
        raise error
    _log.warning(
        "The scan keeps the files in the last known locations of a table, and files written since. %s", error
    )
    return replace(stored.owner, current_until_ms=stored.current_ms)


def _first_claim(
    catalog: PyIcebergCatalog, name: TableId, pointer: str, error: RefusedError
) -> LocationOwner:
    """Returns the owner of a table that cannot be read and never was: that of the newest earlier metadata file in the
    pointer's folder; the location of that folder, if no metadata file of the table is left; or the approved locations of
    the catalog. Raises `error` if there is none of these, or the store does not answer."""
    try:
        io = catalog.io_of(name)
        beside = _metadata_files(open_store(io, pointer), pointer)
    except (IcebergMaintError, ValueError, OSError) as why:
        raise error from why
    for location in beside:
        try:
            data = read_bytes(io, location, "metadata file")
            earlier, updated_ms = _owner(name, location, data), int(document_of(data)["last-updated-ms"])
        except Exception as why:  # as in `_read`; a file before it may be whole
            if is_of_process(why):
                raise
            continue
        _log.warning(
            "The scan keeps the files in the locations that %s names, and files written since. %s",
            location,
            error,
        )
        return replace(earlier, current_until_ms=updated_ms)
    location, separator, _ = pointer.rpartition("/metadata/")
    if not beside and separator and "/" not in pointer[len(location) + len(separator) :]:
        _log.warning(
            "The scan keeps the files in %s, the location of a table without a metadata file. %s",
            location,
            error,
        )
        return LocationOwner(str(name), "", (location,))
    if (approved := approved_of(io.properties)) is not None:
        _log.warning("The scan keeps the files in the approved locations of the catalog. %s", error)
        return LocationOwner(str(name), "", approved.prefixes)
    raise error


def _metadata_files(store: Store, pointer: str) -> list[str]:
    """Returns the metadata files in the pointer's folder, the newest first."""
    folder = pointer.rpartition("/")[0]
    files = list(islice(store.list(folder), _MOST_LISTED + 1))
    if len(files) > _MOST_LISTED:
        raise ValueError(f"{folder} holds more than {_MOST_LISTED} files")
    files.sort(key=lambda file: (file.modified_ms or 0, file.path), reverse=True)
    return [
        file.path
        for file in files
        if file.path.rpartition("/")[0] == folder
        and file.path.endswith((".metadata.json", ".metadata.json.gz"))
    ]


def _owner(name: TableId, pointer: str, data: bytes) -> LocationOwner:
    # Every format version: the owned locations have the same keys in all of them.
    document = document_of(data)
    location = document["location"]
    table_uuid = str(document.get("table-uuid") or location)
    folders = (path.rpartition("/")[0] for path in _every_file_named(document))
    return location_owner(str(name), table_uuid, location, document.get("properties") or {}, pointer, folders)


def _every_file_named(document: dict[str, Any]) -> Iterator[str]:
    """Yields the files that the metadata file names. They may be in earlier locations of the table. The
    data files are named in manifests, which are not read for every scan of another table."""
    for snapshot in document.get("snapshots") or ():
        if "manifest-list" in snapshot:
            yield snapshot["manifest-list"]
        yield from snapshot.get("manifests") or ()
    yield from named_files(document)
