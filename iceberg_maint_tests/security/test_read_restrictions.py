"""Governed tables: a catalog's answer has a row filter or column masks, and no file of the table is opened."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField, StringType

from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.catalog.location_owners import FleetLocationOwners
from iceberg_maint.catalog.rights import refreshed, restrictions
from iceberg_maint.cli import iceberg_maint
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.errors import GovernedTableError
from iceberg_maint.ledger.ledger import sql_ledger
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint_tests.support.catalog.claim_memory import ClaimMemory
from iceberg_maint_tests.support.catalog.table_files import File, ManifestFile, TableFiles, spec
from iceberg_maint_tests.support.ledger.values import make_record
from iceberg_maint_tests.support.servers.rest_server import RestServer, serving

pytestmark = pytest.mark.seconds

TABLE = TableId.parse("lake.db.people")
FREE = TableId.parse("lake.db.free")
ROW_FILTER = {
    "required-row-filter": {
        "type": "eq",
        "left": {"type": "reference", "id": 1},
        "right": {"type": "literal", "value": "de"},
    }
}
MASK = {"required-column-projections": [{"action": "mask-alphanum", "field-id": 1}]}
SECRET = "hush-hush"

_accesses: list[str] = []


def _record(event: str, args: tuple[Any, ...]) -> None:
    # The REST server of this process reads metadata files to answer.
    is_access = event in ("open", "os.listdir", "os.scandir", "os.remove", "os.rename")
    if is_access and "process_request" not in threading.current_thread().name:
        _accesses.append(f"{event} {args[0]}")


sys.addaudithook(_record)


@contextmanager
def no_file_below(folder: Path) -> Iterator[None]:
    """Fails if the program opens, lists, moves or deletes anything below the folder."""
    _accesses.clear()
    yield
    assert [a for a in _accesses if str(folder) in a] == []


class GovernedLake:
    """A REST catalog with the tables `people`, in a partition with a secret value, and `free`, and a configuration."""

    def __init__(self, folder: Path, server: RestServer, url: str) -> None:
        self.folder, self.server, self.url = folder, server, url
        self.config = folder / "iceberg_maint.yaml"
        document = {
            "ledger": f"sqlite:///{folder}/ledger.db",
            "catalogs": {"lake": {"type": "rest", "uri": url}},
            "defaults": {"mode": "act"},
        }
        self.config.write_text(json.dumps(document))

    def catalog(self) -> PyIcebergCatalog:
        return PyIcebergCatalog("lake", {"type": "rest", "uri": self.url})

    def ledger(self) -> Ledger:
        return sql_ledger(f"sqlite:///{self.folder}/ledger.db")

    def invoke(self, *arguments: str) -> Result:
        return CliRunner().invoke(iceberg_maint, ["--config", str(self.config), *arguments])


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[GovernedLake]:
    schema = Schema(NestedField(1, "name", StringType(), required=False))
    by_name = spec(0, (1, 1000, IdentityTransform(), "name"))
    for name in ("people", "free"):
        table = TableFiles(tmp_path / name, schema, [by_name])
        files = tuple(File(f"{(tmp_path / name).as_uri()}/data/{i}.parquet", (SECRET,)) for i in range(9))
        manifest = ManifestFile(files, by_name, 1, 11)
        table.commit([manifest], snapshot_id=11, sequence_number=1, timestamp_ms=1_700_000_000_000)
        table.register(tmp_path / "catalog.db", f"db.{name}")
    server = RestServer(tmp_path / "catalog.db")
    with serving(server) as url:
        yield GovernedLake(tmp_path, server, url)


@pytest.mark.parametrize(
    ("document", "kinds"),
    [
        (None, ()),
        ({}, ()),
        ({"required-column-projections": []}, ()),
        ({"required-row-filter": None}, ()),
        (ROW_FILTER, ("a row filter",)),
        ({"required-row-filter": True}, ("a row filter",)),
        ({"required-row-filter": False}, ("a row filter",)),
        (MASK, ("column masks",)),
        ({**ROW_FILTER, **MASK}, ("a row filter", "column masks")),
        ({"required-sample": 3}, ("an unknown restriction",)),
        ([], ("an unknown restriction",)),
        ("none", ("an unknown restriction",)),
    ],
)
def test_restrictions_are_named_and_unknown_ones_restrict(document: object, kinds: tuple[str, ...]) -> None:
    assert restrictions(document) == kinds


COMMANDS = {
    "observe": ("observe", "lake.db.people"),
    "plan": ("plan", "lake.db.people"),
    "why": ("why", "lake.db.people"),
    "run": ("run", "lake.db.people"),
    "forced run": ("run", "lake.db.people", "--force"),
    "columnar run": ("run", "lake.db.people", "--set", "rewrite_data_files.strategy=columnar"),
    "expiry": ("run", "lake.db.people", "--operation", "expire_snapshots"),
    "orphan scan": ("orphans", "scan", "lake.db.people"),
    "trash": ("orphans", "trash", "lake.db.people"),
    "assess": ("assess", "lake.db.people"),
    "attest": ("attest", "lake.db.people"),
    "reconcile": ("reconcile", "lake.db.people"),
}


@pytest.mark.parametrize("restricted", [ROW_FILTER, MASK], ids=["filter", "mask"])
def test_governed_table_is_refused_by_every_command_before_a_file_is_opened(
    lake: GovernedLake, restricted: object
) -> None:
    lake.server.restricts = restricted
    for name, arguments in COMMANDS.items():
        with no_file_below(lake.folder / "people"):
            result = lake.invoke(*arguments)
        assert (name, result.exit_code) == (name, 3), result.output
        assert "ICM-169" in result.output, name
        assert SECRET not in result.output, name


def test_stored_values_of_a_table_that_becomes_governed_are_redacted_until_it_is_free(
    lake: GovernedLake,
) -> None:
    shows = (
        ("history", "lake.db.people"),
        ("--json", "history"),
        ("--json", "proof", "run-r1"),
        ("report",),
        ("--json", "tables"),
    )
    assert SECRET in lake.invoke("--json", "observe", "lake.db.people").output
    uuid = lake.ledger().health.measurements([TABLE])[0].table_uuid
    lake.ledger().records.append(make_record("r1", TABLE, uuid))
    assert "day=1" in lake.invoke("--json", "history").output
    lake.server.restricts = MASK
    assert lake.invoke("observe", "lake.db.people").exit_code == 3
    for arguments in shows:
        output = lake.invoke(*arguments).output
        assert (arguments, SECRET in output, "day=1" in output) == (arguments, False, False)
    assert lake.ledger().health.get(TABLE) is None
    record = lake.ledger().records.newest(str(TABLE), 1)[0]
    assert {p for b in record.outcome.batches for p in b.partitions} == {"redacted"}
    lake.server.restricts = None
    assert lake.invoke("observe", "lake.db.people").exit_code == 0
    assert lake.ledger().health.get(TABLE) is not None
    assert "day=1" in lake.invoke("--json", "history").output


def test_governed_table_keeps_its_locations_from_the_orphan_pass_of_another_table(
    lake: GovernedLake,
) -> None:
    lake.server.restricts = ROW_FILTER
    with no_file_below(lake.folder / "people"):
        claims = FleetLocationOwners({"lake": lake.catalog()}, ClaimMemory()).others(FREE)
    assert [claim.table for claim in claims] == [str(TABLE)]
    assert (lake.folder / "people").as_uri() in claims[0].locations


def test_pointers_of_a_catalog_with_a_governed_table_lack_only_that(lake: GovernedLake) -> None:
    lake.server.restricts = MASK
    assert lake.catalog().pointers([TABLE, FREE]) == {}


def test_table_that_becomes_governed_ends_a_pass_at_its_next_credentials() -> None:
    def load() -> PyArrowFileIO:
        raise GovernedTableError("lake.db.people: restricted.")

    now = [0]
    io = refreshed(PyArrowFileIO({"s3.session-token": "t"}), load, lambda: now[0])
    now[0] = 600_000
    with pytest.raises(GovernedTableError, match="ICM-169"):
        io.new_input("s3://bucket/a")
