"""A small table in a real catalog, by PyIceberg, and the adapter that reads it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.core.model.ids import TableId
from iceberg_maint_tests.support.catalog.table_files import spec

EVENTS = TableId.parse("lake.db.events")
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False), NestedField(2, "region", StringType(), required=False)
)
BY_REGION = spec(0, (2, 1000, IdentityTransform(), "region"))
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "region": ["eu", "us", None]})


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path / 'catalog.db'}", warehouse=tmp_path.as_uri())
    catalog.create_namespace("db")
    yield catalog
    catalog.engine.dispose()


@pytest.fixture
def events(writer: SqlCatalog) -> Table:
    table = writer.create_table("db.events", SCHEMA, partition_spec=BY_REGION)
    for _ in range(3):
        table.append(ROWS)
    table.delete(EqualTo("id", 1))
    return table


@pytest.fixture
def catalog(tmp_path: Path) -> PyIcebergCatalog:
    return PyIcebergCatalog("lake", sql_properties(tmp_path))


def sql_properties(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": folder.as_uri()}
