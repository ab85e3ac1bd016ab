"""The claims of all tables: what is read again, and from where."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFileIO

from iceberg_maint.catalog.location_owners import FleetLocationOwners
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.location import LocationOwner
from iceberg_maint.errors import UnreadableTableError
from iceberg_maint.ports.stored import StoredLocationOwner

A, B, C = (TableId("lake", ("db",), name) for name in "abc")


class Catalog:
    """Tables at `s3://b/<name>`, by the version of their metadata file; it writes down which files are read."""

    def __init__(self, *tables: TableId) -> None:
        self.versions = dict.fromkeys(tables, 1)
        self.unreadable: set[TableId] = set()
        self.read: list[str] = []

    def tables(self) -> tuple[TableId, ...]:
        return tuple(self.versions)

    def pointers(self, tables: Collection[TableId]) -> Mapping[TableId, str]:
        return {t: self._pointer(t) for t in tables}

    def metadata_file(self, table: TableId) -> tuple[str, bytes]:
        self.read.append(self._pointer(table))
        if table in self.unreadable:
            raise UnreadableTableError("ICM-101", f"{table} cannot be read.", "repair it.")
        document = {"location": f"s3://b/{table.name}", "table-uuid": table.name}
        return self._pointer(table), json.dumps(document).encode()

    def _pointer(self, table: TableId) -> str:
        return f"s3://b/{table.name}/metadata/{self.versions[table]}.json"


class Ledger:
    """Claims in memory, which several processes share; it counts the times that all are read."""

    def __init__(self) -> None:
        self.stored: dict[TableId, StoredLocationOwner] = {}
        self.reads = 0

    def now_ms(self) -> int:
        return 1000

    def location_owners(self, catalog: str) -> Mapping[TableId, StoredLocationOwner]:
        self.reads += 1
        return dict(self.stored)

    def put_location_owners(
        self, catalog: str, stored: Mapping[TableId, StoredLocationOwner], dropped: Collection[TableId] = ()
    ) -> None:
        self.stored = {t: s for t, s in {**self.stored, **stored}.items() if t not in dropped}


def process(catalog: Catalog, ledger: Ledger) -> FleetLocationOwners:
    """The claims as another process sees them."""
    lake: Any = catalog
    return FleetLocationOwners({"lake": lake}, ledger)


def locations(claims: tuple[LocationOwner, ...]) -> dict[str, str]:
    return {c.table: c.locations[0] for c in claims}


def test_claims_of_a_second_pass_are_not_read_from_the_ledger_again() -> None:
    catalog, ledger = Catalog(A, B, C), Ledger()
    claims = process(catalog, ledger)
    assert locations(claims.others(A)) == {"lake.db.b": "s3://b/b", "lake.db.c": "s3://b/c"}
    assert locations(claims.others(B)) == {"lake.db.a": "s3://b/a", "lake.db.c": "s3://b/c"}
    assert ledger.reads == 1
    assert catalog.read == [f"s3://b/{name}/metadata/1.json" for name in "bca"]


def test_claims_of_a_table_that_changed_are_read_from_its_new_file() -> None:
    catalog, ledger = Catalog(A, B, C), Ledger()
    claims = process(catalog, ledger)
    claims.others(A)
    catalog.versions[B] = 2
    assert [c.table for c in claims.others(A)] == ["lake.db.b", "lake.db.c"]
    assert catalog.read[2:] == ["s3://b/b/metadata/2.json"]
    assert (ledger.reads, ledger.stored[B].pointer) == (1, "s3://b/b/metadata/2.json")


def test_claims_of_a_dropped_table_are_deleted_once() -> None:
    catalog, ledger = Catalog(A, B, C), Ledger()
    claims = process(catalog, ledger)
    claims.others(A)
    del catalog.versions[C]
    assert locations(claims.others(A)) == {"lake.db.b": "s3://b/b"}
    assert set(ledger.stored) == {B}
    ledger.stored[C] = StoredLocationOwner("of another process", LocationOwner("lake.db.c", "c", ()), 1)
    claims.others(A)
    assert set(ledger.stored) == {B, C}


def test_claims_of_many_changed_tables_are_read_from_the_ledger_first() -> None:
    many = [TableId("lake", ("db",), f"t{n}") for n in range(10)]
    catalog, ledger = Catalog(A, *many), Ledger()
    mine, other = process(catalog, ledger), process(catalog, ledger)
    mine.others(A)
    catalog.versions |= dict.fromkeys(many, 2)
    other.others(A)
    catalog.read.clear()
    assert len(mine.others(A)) == 10
    assert catalog.read == []


def test_table_committed_to_while_it_is_read_is_read_once_more() -> None:
    class Committed(Catalog):
        def metadata_file(self, table: TableId) -> tuple[str, bytes]:
            pointer, document = super().metadata_file(table)
            if self.versions[table] < 3:
                self.versions[table] += 1
                document = b"cleaned up"
            return pointer, document

    catalog, ledger = Committed(A, B), Ledger()
    assert locations(process(catalog, ledger).others(A)) == {"lake.db.b": "s3://b/b"}
    assert catalog.read == [f"s3://b/b/metadata/{version}.json" for version in (1, 2, 3)]


def test_unreadable_table_that_was_never_read_has_the_claim_of_its_last_whole_metadata_file(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "metadata"
    folder.mkdir()
    document = {"location": "s3://b/b", "table-uuid": "b", "last-updated-ms": 7}
    (folder / "1.metadata.json").write_text(json.dumps(document))
    (folder / "2.metadata.json").write_text("{")

    class Damaged(Catalog):
        def _pointer(self, table: TableId) -> str:
            return f"file://{folder}/2.metadata.json"

        def io_of(self, table: TableId) -> PyArrowFileIO:
            return PyArrowFileIO({})

    catalog = Damaged(A, B)
    catalog.unreadable = {B}
    assert process(catalog, Ledger()).others(A) == (
        LocationOwner("lake.db.b", "b", ("s3://b/b", folder.as_uri()), current_until_ms=7),
    )


def test_unreadable_table_has_the_claim_that_another_process_read_last() -> None:
    """It may have got another place for its data since this process has read it."""
    catalog, ledger = Catalog(A, B), Ledger()
    claims = process(catalog, ledger)
    claims.others(A)
    moved = LocationOwner("lake.db.b", "b", ("s3://b/b", "s3://data/b"))
    ledger.stored[B] = StoredLocationOwner("s3://b/b/metadata/2.json", moved, 2000)
    catalog.versions[B] = 3
    catalog.unreadable.add(B)
    [of_b] = claims.others(A)
    assert (of_b.locations, of_b.current_until_ms) == (moved.locations, 2000)
