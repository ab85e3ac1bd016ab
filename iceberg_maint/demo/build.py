"""Builds the lake: every table by its writers, once."""

from __future__ import annotations

import time
from collections.abc import Callable

from pyiceberg.catalog import Catalog, load_catalog

from iceberg_maint.config import Config
from iceberg_maint.demo.store import LOCAL, LakeStore
from iceberg_maint.demo.tables import TABLES, DemoTable, Scale, Writers
from iceberg_maint.demo.workspace import CATALOG, NAMESPACE, Place
from iceberg_maint.runner.runtime import Runtime

Built = Callable[[DemoTable, float], None]
"""Called after each table, with its build time in seconds."""


def make_catalog(config: Config) -> Catalog:
    """The lake's catalog for its writers. Creates the demo's namespace if it is missing."""
    connection = config.catalogs[CATALOG]
    catalog = load_catalog(CATALOG, **connection.pyiceberg_properties())
    catalog.create_namespace_if_not_exists(NAMESPACE)
    return catalog


def writers_of(
    config: Config, runtime: Runtime, place: Place, scale: Scale, store: LakeStore = LOCAL
) -> Writers:
    """Writers for the lake's catalog. They share only its address with the maintainer."""
    return Writers(make_catalog(config), runtime.spark.session, place, scale, store.add_orphans)


def build_lake(
    config: Config, runtime: Runtime, place: Place, scale: Scale, store: LakeStore, built: Built
) -> None:
    """Writes every table. The file at the end distinguishes a complete lake from an interrupted build, and from a lake
    whose store has ended."""
    writers = writers_of(config, runtime, place, scale, store)
    for table in TABLES:
        started = time.monotonic()
        table.build(writers)
        built(table, time.monotonic() - started)
    if not store.ends:
        place.built.write_text("", encoding="utf-8")
