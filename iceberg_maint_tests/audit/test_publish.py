"""The audit log as an Iceberg table: each entry once, whatever happens between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.errors import IcebergMaintError, RefusedError
from iceberg_maint.integrations.audit import publish as publish_module
from iceberg_maint.integrations.audit.chain import entry_file_name
from iceberg_maint.integrations.audit.log import AuditLog
from iceberg_maint.integrations.audit.publish import IcebergAuditTable, publish
from iceberg_maint.ports.observers import AuditRow, ChainEnd
from iceberg_maint_tests.audit.test_log import Death, MemoryFolder
from iceberg_maint_tests.audit.test_retention import AgingLedger, log_of, work

NAME = TableId("lake", ("ops", "audit"), "entries")
CHAINS = ["u1", "u2"]


class Lake:
    """Two logs of ten days, and a catalog for the audit table."""

    def __init__(self, home: Path) -> None:
        self.folders = {chain: MemoryFolder() for chain in CHAINS}
        self.ledgers = {chain: AgingLedger() for chain in CHAINS}
        for chain in CHAINS:
            self.work(chain, range(1, 11))
        self.properties = {"type": "sql", "uri": f"sqlite:///{home}/catalog.db", "warehouse": home.as_uri()}
        self.catalog = SqlCatalog("lake", **self.properties)
        self.table = IcebergAuditTable(NAME, self.properties)

    def work(self, chain: str, days: range) -> None:
        work(self.folders[chain], self.ledgers[chain], days)

    @property
    def log(self) -> AuditLog:
        return AuditLog(self.folders.__getitem__, self.ledgers["u1"])  # type: ignore[arg-type]

    def rows(self) -> list[tuple[str, int]]:
        found = self.catalog.load_table((*NAME.namespace, NAME.name)).scan().to_arrow().to_pylist()
        return sorted((r["chain"], r["sequence"]) for r in found)

    def all_entries(self) -> list[tuple[str, int]]:
        return [(c, int(n.partition(".")[0])) for c in CHAINS for n in self.folders[c].names()]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def test_first_publication_creates_the_table_and_the_next_ones_append_what_is_new(lake: Lake) -> None:
    assert publish(lake.log, CHAINS, lake.table).entries == 40
    lake.work("u2", range(11, 13))
    published = publish(lake.log, CHAINS, lake.table)
    assert (published.entries, published.appends, published.damaged) == (4, 1, {})
    assert publish(lake.log, CHAINS, lake.table).appends == 0
    assert lake.rows() == lake.all_entries()
    table = lake.catalog.load_table((*NAME.namespace, NAME.name))
    assert [f.name for f in table.spec().fields] == ["at_day"]
    record = next(r for r in table.scan().to_arrow().to_pylist() if r["kind"] == "record")
    assert (record["table_name"], record["operation"]) == ("lake.db.t", "rewrite_data_files")


class DyingTable:
    """The process dies before or after an append."""

    def __init__(self, table: IcebergAuditTable, *, dies_at: int, after: bool) -> None:
        self._table, self._dies_at, self._after, self._appends = table, dies_at, after, 0

    def open(self) -> str:
        return self._table.open()

    def ends(self) -> Mapping[str, ChainEnd]:
        return self._table.ends()

    def append(self, rows: Sequence[AuditRow]) -> None:
        dies = self._appends == self._dies_at
        self._appends += 1
        if dies and not self._after:
            raise Death
        self._table.append(rows)
        if dies:
            raise Death


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("dies_at", [0, 1, 3])
def test_publication_that_dies_at_any_append_leaves_no_gap_and_no_double(
    lake: Lake, dies_at: int, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish_module, "ROWS_PER_APPEND", 10)
    with pytest.raises(Death):
        publish(lake.log, CHAINS, DyingTable(lake.table, dies_at=dies_at, after=after))
    publish(lake.log, CHAINS, lake.table)
    assert lake.rows() == lake.all_entries()


def test_append_on_the_commit_of_another_process_is_refused_and_no_double(lake: Lake) -> None:
    """A publication was paused until its lease had expired, and another one copied the same entries."""
    lake.table.open()
    ends = lake.table.ends()
    other = IcebergAuditTable(NAME, lake.properties)
    publish(lake.log, CHAINS, other)

    class Paused(DyingTable):
        def ends(self) -> Mapping[str, ChainEnd]:
            return ends

    with pytest.raises(IcebergMaintError, match="ICM-158"):
        publish(lake.log, CHAINS, Paused(lake.table, dies_at=99, after=False))
    assert lake.rows() == lake.all_entries()


def test_chain_of_the_audit_table_itself_is_omitted(lake: Lake) -> None:
    own = lake.table.open()
    lake.folders[own], lake.ledgers[own] = MemoryFolder(), AgingLedger()
    lake.work(own, range(1, 3))
    assert publish(lake.log, [own, "u1"], lake.table).entries == 20


@pytest.mark.parametrize(
    ("damage", "copied", "why"),
    [
        ("changed", 4, "the entry 000000000005.json was changed: its hash is not the hash of its content"),
        ("missing", 4, "the entries 5 to 5 are missing"),
        ("swapped", 4, "the entry 000000000005.json has the content of 000000000009.json"),
    ],
)
def test_chain_with_a_damaged_entry_is_copied_up_to_it_and_others_whole(
    lake: Lake, damage: str, copied: int, why: str
) -> None:
    files, name = lake.folders["u1"].files, entry_file_name(5)
    if damage == "changed":
        files[name] = files[name].replace(b"small", b"large")
    elif damage == "missing":
        del files[name]
    else:
        files[name] = files[entry_file_name(9)]
    published = publish(lake.log, CHAINS, lake.table)
    assert published.damaged == {"u1": why}
    assert lake.rows() == [("u1", n) for n in range(1, copied + 1)] + [("u2", n) for n in range(1, 21)]


def test_log_that_was_written_anew_after_its_publication_is_damaged(lake: Lake) -> None:
    publish(lake.log, CHAINS, lake.table)
    lake.folders["u1"], lake.ledgers["u1"] = MemoryFolder(), AgingLedger()
    lake.work("u1", range(2, 20))
    published = publish(lake.log, CHAINS, lake.table)
    assert published.damaged == {"u1": "the entry 20 was replaced after it was copied or read"}
    assert published.entries == 0


def test_entries_behind_a_retention_are_copied(lake: Lake) -> None:
    publish(lake.log, CHAINS, lake.table)
    lake.work("u1", range(11, 101))
    log_of(lake.folders["u1"], lake.ledgers["u1"]).prune("lake.db.t", "u1")
    first = int(lake.folders["u1"].names()[0].partition(".")[0])
    published = publish(lake.log, CHAINS, lake.table)
    assert (first, published.damaged) == (139, {})
    assert [n for c, n in lake.rows() if c == "u1"] == [*range(1, 21), *range(139, 202)]


def test_table_that_was_dropped_is_created_again_from_the_log(lake: Lake) -> None:
    publish(lake.log, CHAINS, lake.table)
    lake.catalog.drop_table((*NAME.namespace, NAME.name))
    assert publish(lake.log, CHAINS, lake.table).entries == 40
    assert lake.rows() == lake.all_entries()


def test_table_with_other_columns_is_refused(lake: Lake) -> None:
    lake.catalog.create_namespace(NAME.namespace)
    lake.catalog.create_table((*NAME.namespace, NAME.name), Schema(NestedField(1, "id", LongType())))
    with pytest.raises(RefusedError) as refused:
        publish(lake.log, CHAINS, lake.table)
    assert refused.value.code == "ICM-157"
    assert "chain, sequence, kind" in refused.value.message


def test_table_with_one_more_optional_column_is_written(lake: Lake) -> None:
    lake.table.open()
    with lake.catalog.load_table((*NAME.namespace, NAME.name)).update_schema() as update:
        update.add_column("note", LongType())
    assert publish(lake.log, CHAINS, lake.table).entries == 40


def test_catalog_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    gone = IcebergAuditTable(
        NAME, {"type": "sql", "uri": f"sqlite:///{tmp_path}/no/catalog.db", "warehouse": "file:///"}
    )
    with pytest.raises(IcebergMaintError) as failed:
        gone.open()
    assert failed.value.code == "ICM-158"
    assert "lake.ops.audit.entries cannot be used" in failed.value.message
