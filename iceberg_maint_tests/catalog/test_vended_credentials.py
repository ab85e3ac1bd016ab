"""Credentials that a REST catalog vends: a store that denies expired ones is read and changed on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.catalog.approved_io import open_store
from iceberg_maint.catalog.rights import due_ms, refreshed
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.errors import RefusedError, UnreadableTableError
from iceberg_maint_tests.support.catalog.table_files import TableFiles
from iceberg_maint_tests.support.servers.object_server import Bucket, object_server
from iceberg_maint_tests.support.servers.rest_server import RestServer, serving

pytestmark = pytest.mark.seconds

EVENTS = TableId.parse("lake.db.events")
MINUTE_MS = 60_000


class Vendor:
    """A REST catalog whose credentials last for 15 minutes, a store that takes the newest only, and a clock."""

    def __init__(self, server: RestServer, endpoint: str, bucket: Bucket) -> None:
        self.now_ms, self.loads, self.endpoint, self.bucket = 1_000_000_000, 0, endpoint, bucket
        server.vends = self.vend

    def vend(self) -> dict[str, str]:
        self.loads += 1
        self.bucket.token = f"token-{self.loads}"
        return {
            "s3.endpoint": self.endpoint,
            "s3.region": "us-east-1",
            "s3.access-key-id": "key",
            "s3.secret-access-key": "secret",
            "s3.session-token": self.bucket.token,
            "s3.session-token-expires-at-ms": str(self.now_ms + 15 * MINUTE_MS),
        }


@pytest.fixture
def vendor_and_catalog(tmp_path: Path) -> Iterator[tuple[Vendor, PyIcebergCatalog]]:
    table = TableFiles(
        tmp_path / "t", Schema(NestedField(1, "id", LongType(), required=False)), [PartitionSpec()]
    )
    table.register(tmp_path / "catalog.db", "db.events")
    server = RestServer(tmp_path / "catalog.db")
    with object_server() as (endpoint, bucket), serving(server) as url:
        vendor = Vendor(server, endpoint, bucket)
        yield vendor, PyIcebergCatalog("lake", {"type": "rest", "uri": url}, now_ms=lambda: vendor.now_ms)


def test_store_of_a_long_pass_takes_new_credentials_before_the_old_ones_expire(
    vendor_and_catalog: tuple[Vendor, PyIcebergCatalog],
) -> None:
    vendor, catalog = vendor_and_catalog
    vendor.bucket.objects["t/a"] = (b"1", time.time())
    store = open_store(catalog.io_of(EVENTS), "s3://bucket/t")
    assert [f.path for f in store.list("s3://bucket/t")] == ["s3://bucket/t/a"]
    vendor.now_ms += 9 * MINUTE_MS
    assert store.read("s3://bucket/t/a") == b"1"
    assert vendor.loads == 1
    vendor.bucket.token = "token-2"  # the store denies the first ones from here on
    vendor.now_ms += 2 * MINUTE_MS
    assert store.read("s3://bucket/t/a") == b"1"
    store.delete("s3://bucket/t/a")
    assert vendor.loads == 2
    assert "t/a" not in vendor.bucket.objects


@pytest.mark.drawn(1)
def test_credentials_that_cannot_be_loaded_again_are_used_on_and_denied_by_the_store(
    vendor_and_catalog: tuple[Vendor, PyIcebergCatalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    vendor, catalog = vendor_and_catalog
    store = open_store(catalog.io_of(EVENTS), "s3://bucket/t")

    def away(_table: TableId) -> Any:
        raise UnreadableTableError("ICM-101", "away.", "wait.")

    monkeypatch.setattr(catalog, "_reload", away)
    vendor.now_ms += 11 * MINUTE_MS
    assert list(store.list("s3://bucket/t")) == []
    vendor.bucket.token = "token-2"
    with pytest.raises(RefusedError, match="ICM-125"):
        list(store.list("s3://bucket/t"))
    monkeypatch.undo()
    vendor.now_ms += MINUTE_MS
    assert list(store.list("s3://bucket/t")) == []


def test_credentials_of_the_configuration_are_not_wrapped() -> None:
    io = PyArrowFileIO({"s3.access-key-id": "key"})
    assert refreshed(io, lambda: None, lambda: 0) is io


@pytest.mark.parametrize(
    ("properties", "minutes"),
    [
        ({}, 10),
        ({"s3.session-token-expires-at-ms": 60 * MINUTE_MS}, 55),
        ({"s3.session-token-expires-at-ms": str(4 * MINUTE_MS)}, 2),
        ({"s3.session-token-expires-at-ms": "0"}, 0),
        ({"s3.session-token-expires-at-ms": "soon"}, 10),
        (
            {
                "adls.sas-token-expires-at-ms.account": 20 * MINUTE_MS,
                "gcs.oauth2.token-expires-at": 30 * MINUTE_MS,
            },
            15,
        ),
    ],
)
def test_credentials_are_loaded_again_before_they_expire(properties: dict[str, Any], minutes: int) -> None:
    assert due_ms(properties, 0) == minutes * MINUTE_MS
