"""The probe of rights: each missing right is named alone, by a store that answers 403 and a catalog that denies."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from iceberg_maint.catalog import sql_listing
from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.catalog.approved_io import open_store
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.errors import RefusedError
from iceberg_maint.ports.storage import Store
from iceberg_maint_tests.support.catalog.table_files import TableFiles, register
from iceberg_maint_tests.support.servers.object_server import Bucket, object_server
from iceberg_maint_tests.support.servers.rest_server import RestServer, serving

EVENTS = TableId.parse("lake.db.events")
METADATA = "w/t/metadata/1.metadata.json"


class S3Lake:
    """A table whose metadata is in an S3 bucket, with a SQL and a REST catalog over it."""

    def __init__(self, folder: Path, endpoint: str, bucket: Bucket) -> None:
        self.folder, self.endpoint, self.bucket = folder, endpoint, bucket

    def probe(self, kind: str = "sql", uri: str = "", *, changes: bool = True) -> dict[str, str | None]:
        """The code of each right, None if it is permitted."""
        properties: dict[str, Any] = {
            "type": kind,
            "uri": uri or f"sqlite:///{self.folder}/catalog.db",
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": "key",
            "s3.secret-access-key": "secret",
            "s3.region": "us-east-1",
            "s3.retry-strategy-impl": "",
        }
        self.bucket.requests.clear()
        found = PyIcebergCatalog("lake", properties).missing_rights(EVENTS, changes=changes)
        return {right.value: error and error.code for right, error in found}


@contextmanager
def s3_lake(folder: Path) -> Iterator[S3Lake]:
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    table = TableFiles(folder / "t", schema, [PartitionSpec()])
    document = table.document() | {"location": "s3://bucket/w/t"}
    register(folder / "catalog.db", "db.events", f"s3://bucket/{METADATA}")
    with object_server() as (endpoint, bucket):
        bucket.objects[METADATA] = (json.dumps(document).encode(), time.time())
        yield S3Lake(folder, endpoint, bucket)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[S3Lake]:
    with s3_lake(tmp_path) as found:
        yield found


ALL = {"get": None, "list": None, "put": None, "delete": None, "commit": None}


def test_all_rights_are_present_and_no_file_stays(lake: S3Lake) -> None:
    assert lake.probe() == ALL
    # Arrow creates an object for a folder from which it removes a file.
    assert set(lake.bucket.objects) == {METADATA, "w/t/"}


@pytest.mark.parametrize("right", ["list", "put", "delete"])
def test_missing_right_on_the_storage_is_named_alone(lake: S3Lake, right: str) -> None:
    lake.bucket.denied = frozenset({right})
    probed = lake.probe()
    assert {r: code for r, code in probed.items() if code} == {right: "ICM-125"}


def test_missing_right_to_read_is_named_before_anything_is_written(lake: S3Lake) -> None:
    lake.bucket.denied = frozenset({"get"})
    assert lake.probe() == {"get": "ICM-125"}
    assert "PUT" not in lake.bucket.requests


def test_advice_probes_the_rights_to_read_only(lake: S3Lake) -> None:
    lake.bucket.denied = frozenset({"list", "put", "delete"})
    assert lake.probe(changes=False) == {"get": None}
    assert not {"PUT", "POST", "DELETE"} & set(lake.bucket.requests)


def test_missing_right_to_commit_is_named_by_the_catalog(lake: S3Lake, tmp_path: Path) -> None:
    local = TableFiles(
        tmp_path / "r", Schema(NestedField(1, "id", LongType(), required=False)), [PartitionSpec()]
    )
    (tmp_path / "rest").mkdir()
    local.register(tmp_path / "rest" / "catalog.db", "db.events")
    server = RestServer(tmp_path / "rest" / "catalog.db")
    with serving(server) as url:
        assert lake.probe("rest", url)["commit"] is None
        server.denies_commits = True
        assert lake.probe("rest", url)["commit"] == "ICM-170"


def test_commit_to_a_sql_catalog_that_may_only_be_read_is_named(
    lake: S3Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(name: str, file: Path) -> sql_listing._Connection:
        connection = open_sqlite(name, file)
        connection.execute("PRAGMA query_only = ON")
        return connection

    open_sqlite = sql_listing._open
    monkeypatch.setattr(sql_listing, "_open", read_only)
    assert lake.probe() == {**ALL, "commit": "ICM-170"}


REQUESTS: dict[str, Callable[[Store], object]] = {
    "list": lambda store: list(store.list("s3://bucket/w/t")),
    "get": lambda store: store.read(f"s3://bucket/{METADATA}"),
    "put": lambda store: store.create("s3://bucket/w/t/new", [b"1"]),
    "delete": lambda store: store.delete(f"s3://bucket/{METADATA}"),
}


@pytest.mark.parametrize("right", REQUESTS)
def test_request_of_an_operation_without_its_right_is_refused_and_removes_nothing(
    lake: S3Lake, right: str
) -> None:
    properties = {
        "s3.endpoint": lake.endpoint,
        "s3.access-key-id": "key",
        "s3.secret-access-key": "secret",
        "s3.region": "us-east-1",
    }
    store = open_store(PyArrowFileIO(properties), "s3://bucket/w/t")
    lake.bucket.denied = frozenset({right})
    with pytest.raises(RefusedError, match="ICM-125"):
        REQUESTS[right](store)
    assert list(lake.bucket.objects) == [METADATA]
