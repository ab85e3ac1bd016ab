"""A REST catalog that signs requests to the store in place of giving credentials."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.errors import UnreadableTableError
from iceberg_maint_tests.support.catalog.table_files import TableFiles
from iceberg_maint_tests.support.servers.rest_server import RestServer, serving

TABLE = TableId.parse("lake.db.events")
SIGNS = {"s3.remote-signing-enabled": "true", "s3.signer.uri": "http://127.0.0.1:1"}
KEYS = {"s3.access-key-id": "key", "s3.secret-access-key": "secret"}


@pytest.fixture
def database(tmp_path: Path) -> Path:
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    table = TableFiles(tmp_path / "t", schema, [PartitionSpec()])
    table.commit([], snapshot_id=1, sequence_number=1, timestamp_ms=1)
    table.register(tmp_path / "catalog.db", "db.events")
    return tmp_path / "catalog.db"


@pytest.mark.parametrize("value", ["true", "TRUE"])
def test_table_without_credentials_is_refused_before_a_file_is_read(database: Path, value: str) -> None:
    server = RestServer(database)
    server.vends = lambda: {**SIGNS, "s3.remote-signing-enabled": value}
    with serving(server) as url:
        catalog = PyIcebergCatalog("lake", {"type": "rest", "uri": url})
        with pytest.raises(
            UnreadableTableError, match=r"^ICM-154 lake\.db\.events: the catalog signs requests"
        ):
            catalog.pin(TABLE)
        with pytest.raises(UnreadableTableError, match=r"^ICM-154 "):
            catalog.io_of(TABLE)
        assert catalog.tables() == (TABLE,)
        assert list(catalog.pointers([TABLE])) == [TABLE]


@pytest.mark.parametrize(
    ("vended", "configured"),
    [({**SIGNS, **KEYS}, {}), (SIGNS, KEYS), ({"s3.remote-signing-enabled": "false"}, {})],
)
def test_table_with_credentials_or_without_signing_is_read(
    database: Path, vended: dict[str, str], configured: dict[str, str]
) -> None:
    server = RestServer(database)
    server.vends = lambda: vended
    with serving(server) as url:
        catalog = PyIcebergCatalog("lake", {"type": "rest", "uri": url, **configured})
        assert catalog.pin(TABLE).uuid
