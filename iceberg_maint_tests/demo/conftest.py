"""A small demo lake of the test's own, written without Spark."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.demo.main import writers_of
from iceberg_maint.demo.tables import SMALL, Writers
from iceberg_maint.demo.workspace import Place, place, table_id
from iceberg_maint.loop.context import Context
from iceberg_maint.wiring.adapters import build


@dataclass
class SmallLake:
    place: Place
    context: Context
    writers: Writers

    def measure(self, name: str) -> Measured:
        catalog = self.context.catalogs["lake"]
        return catalog.measure(catalog.pin(table_id(name)), Policy().rewrite_data_files)

    def metadata_location(self, name: str) -> str:
        return self.measure(name).metadata_location


def no_session() -> object:
    raise AssertionError("this table is written without Spark")


@pytest.fixture
def small_lake(tmp_path: Path) -> SmallLake:
    where = place(tmp_path / "data")
    config = where.prepare(os.environ)
    context = build(config)
    writers = writers_of(config, context, where, SMALL)
    return SmallLake(where, context, replace(writers, session=no_session))
