"""What every table of every configured catalog claims as its own, read from its metadata file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.catalog.reachable_files import metadata_document, named_files
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.location import Claim, claim
from iceberg_maint.errors import IcebergMaintError, RefusedError, UnknownTableError

_TRIES = 3


class FleetClaims:
    """The claims of all tables. One metadata file is read per table, and again only once the
    table's pointer has moved."""

    def __init__(self, catalogs: Mapping[str, PyIcebergCatalog]) -> None:
        self._catalogs = catalogs
        self._known: dict[TableId, tuple[str, Claim]] = {}

    def others(self, table: TableId) -> tuple[Claim, ...]:
        """The claims of all tables but this one, as of now.

        Raises ConfigurationError ICM-104 for a catalog that does not answer; RefusedError ICM-111
        for a table that cannot be read: what it owns is unknown then.
        """
        return tuple(
            found for catalog in self._catalogs.values() for found in self._of_catalog(catalog, table)
        )

    def _of_catalog(self, catalog: PyIcebergCatalog, table: TableId) -> list[Claim]:
        names = [t for t in catalog.tables() if t != table]
        pointers = catalog.pointers(names)
        found = []
        for name in names:
            pointer = pointers.get(name)
            known = self._known.get(name)
            if pointer is None or known is None or known[0] != pointer:
                known = self._read(catalog, name, table)
            if known is not None:
                self._known[name] = known
                found.append(known[1])
        return found

    def _read(self, catalog: PyIcebergCatalog, name: TableId, table: TableId) -> tuple[str, Claim] | None:
        """Pointer and claim of a table; None when it has been dropped."""
        tried: set[str] = set()
        while True:
            pointer = ""
            try:
                pointer, data = catalog.metadata_file(name)
                return pointer, _claim(name, pointer, data)
            except UnknownTableError:
                return None
            except (
                IcebergMaintError,
                ValueError,
                KeyError,
                TypeError,
                AttributeError,
                EOFError,
                OSError,
            ) as error:
                # It may have been committed to and cleaned up, or dropped, since it was looked up.
                if len(tried) == _TRIES or pointer in tried:
                    raise RefusedError(
                        "ICM-111",
                        f"{name} cannot be read, so that its files might be among those of {table}: {error}.",
                        f"repair {name}, or drop it from its catalog.",
                    ) from error
                tried.add(pointer)


def _claim(name: TableId, pointer: str, data: bytes) -> Claim:
    # Whatever its format version: what a table claims has been written alike in all of them.
    document = metadata_document(data)
    location = document["location"]
    table_uuid = str(document.get("table-uuid") or location)
    folders = (path.rpartition("/")[0] for path in _every_file_named(document))
    return claim(str(name), table_uuid, location, document.get("properties") or {}, pointer, folders)


def _every_file_named(document: dict[str, Any]) -> Iterator[str]:
    """The files that the metadata file names. They may be where the table was, or was told to write,
    before; its data files are named in manifests, which are not read for every pass over another table."""
    for snapshot in document.get("snapshots") or ():
        if "manifest-list" in snapshot:
            yield snapshot["manifest-list"]
        yield from snapshot.get("manifests") or ()
    yield from named_files(document)
