"""The locations that every table of every configured catalog claims, read from its metadata file."""

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
    """The claims of all tables. One metadata file is read per table, and again only after the table's
    pointer has changed."""

    def __init__(self, catalogs: Mapping[str, PyIcebergCatalog]) -> None:
        self._catalogs = catalogs
        self._known: dict[TableId, tuple[str, Claim]] = {}

    def others(self, table: TableId) -> tuple[Claim, ...]:
        """Returns the current claims of all tables except this one.

        Raises ConfigurationError ICM-104 for a catalog that does not answer. Raises RefusedError ICM-111
        for a table that cannot be read, because its files are then unknown.
        """
        return tuple(
            claim for catalog in self._catalogs.values() for claim in self._of_catalog(catalog, table)
        )

    def _of_catalog(self, catalog: PyIcebergCatalog, table: TableId) -> list[Claim]:
        names = [t for t in catalog.tables() if t != table]
        pointers = catalog.pointers(names)
        claims = []
        for name in names:
            pointer = pointers.get(name)
            pointer_and_claim = self._known.get(name)
            if pointer is None or pointer_and_claim is None or pointer_and_claim[0] != pointer:
                pointer_and_claim = self._read(catalog, name, table)
            if pointer_and_claim is not None:
                self._known[name] = pointer_and_claim
                claims.append(pointer_and_claim[1])
        return claims

    def _read(self, catalog: PyIcebergCatalog, name: TableId, table: TableId) -> tuple[str, Claim] | None:
        """Returns pointer and claim of a table; None if it has been dropped."""
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
                # The table may have been committed to and cleaned up, or dropped, since the lookup.
                if len(tried) == _TRIES or pointer in tried:
                    raise RefusedError(
                        "ICM-111",
                        f"{name} cannot be read, so files below {table} may belong to it: {error}.",
                        f"repair {name}, or drop it from its catalog.",
                    ) from error
                tried.add(pointer)


def _claim(name: TableId, pointer: str, data: bytes) -> Claim:
    # Every format version: the claimed locations have the same keys in all of them.
    document = metadata_document(data)
    location = document["location"]
    table_uuid = str(document.get("table-uuid") or location)
    folders = (path.rpartition("/")[0] for path in _every_file_named(document))
    return claim(str(name), table_uuid, location, document.get("properties") or {}, pointer, folders)


def _every_file_named(document: dict[str, Any]) -> Iterator[str]:
    """Yields the files that the metadata file names. They may be in earlier locations of the table. The
    data files are named in manifests, which are not read for every pass over another table."""
    for snapshot in document.get("snapshots") or ():
        if "manifest-list" in snapshot:
            yield snapshot["manifest-list"]
        yield from snapshot.get("manifests") or ()
    yield from named_files(document)
