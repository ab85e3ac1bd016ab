"""The unhealthy tables that every surrounding gets, and their rows by two readers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from iceberg_maint_tests.support.spark.writers import Writers

PARTITIONS, FILES, ROWS = 2, 15, 4
"""Of each partition of `v2` so many files with so many rows."""
V2, V3, EQUALITY = "db.v2", "db.v3", "db.equality"
DELETED = 6
"""Files of `v2` with a position delete file."""
VECTORS = 12
"""Files of `v3`, each with a deletion vector."""

NAMED = {
    "spaces": ("name space", "my table"),
    "unicode": ("räume", "tabelle ü 表"),
    "quotes": ("it's", 'say "hi" `now`'),
    "dots": ("dotted", "a.b"),
}
"""Namespaces and names of tables that some catalogs have."""

Rows = Counter[tuple[Any, ...]]


def make(writers: Writers) -> None:
    """Makes the tables in the catalog `lake`."""
    _make_v2(writers)
    _make_v3(writers)
    _make_equality(writers)


def _make_v2(writers: Writers) -> None:
    table = writers.create(f"lake.{V2}", "id bigint, p int, v string", partitioned_by="p")
    spec, paths = table.spec(), []
    for n in range(PARTITIONS * FILES):
        p = n % PARTITIONS
        rows = [{"id": n * ROWS + i, "p": p, "v": f"{n}-{i}"} for i in range(ROWS)]
        paths.append((writers.append(table, rows, spec, [p]).location(), p))
    for path, p in paths[:DELETED]:
        writers.delete_at(table, {path: [1]}, spec, [p])


def _make_v3(writers: Writers) -> None:
    modes = {f"write.{kind}.mode": "merge-on-read" for kind in ("delete", "update", "merge")}
    table = writers.create(f"lake.{V3}", "id bigint, v string", version=3, properties=modes)
    for n in range(VECTORS):
        writers.append(table, [{"id": n * ROWS + i, "v": f"{n}-{i}"} for i in range(ROWS)])
    writers.sql(f"DELETE FROM lake.{V3} WHERE id % {ROWS} = 0")


def _make_equality(writers: Writers) -> None:
    table = writers.create(f"lake.{EQUALITY}", "id bigint, v string")
    for n in range(3):
        writers.append(table, [{"id": n * ROWS + i, "v": f"{n}-{i}"} for i in range(ROWS)])
        writers.delete_where(table, [{"id": n * ROWS + 2}])


def make_named(writers: Writers, namespace: str, name: str) -> Callable[[], object]:
    """A table with this name, with six small files; what drops it. Raises what the catalog raises if it has no such
    names."""
    bridge = writers.bridge
    catalog = bridge.iceberg.spark.Spark3Util.loadIcebergCatalog(bridge.session, "lake")
    levels = bridge.array(bridge.jvm.java.lang.String, [namespace])
    parent = bridge.iceberg.catalog.Namespace.of(levels)
    catalog.createNamespace(parent)
    identifier = bridge.iceberg.catalog.TableIdentifier.of(parent, name)
    schema = bridge.iceberg.SchemaParser.fromJson(
        '{"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": false}]}'
    )
    table = catalog.createTable(identifier, schema)
    for n in range(6):
        writers.append(table, [{"id": n}])
    return lambda: catalog.dropTable(identifier, False)


def rows_by_spark(spark: Any, name: str) -> Rows:
    """All rows by Spark."""
    return Counter(tuple(row) for row in spark.table(f"lake.{name}").collect())


def rows_by_pyiceberg(properties: dict[str, str], name: str) -> Rows:
    """All rows by PyIceberg, which needs no JVM."""
    from pyiceberg.catalog import load_catalog

    table = load_catalog("lake", **properties).load_table(name).scan().to_arrow()
    return Counter(tuple(row.values()) for row in table.to_pylist())


def expected_rows(name: str) -> Rows:
    """The rows that the writers left, by arithmetic."""
    if name == V2:
        files = range(PARTITIONS * FILES)
        ids = [(n, i) for n in files for i in range(ROWS) if not (n < DELETED and i == 1)]
        return Counter((n * ROWS + i, n % PARTITIONS, f"{n}-{i}") for n, i in ids)
    if name == V3:
        ids = [(n, i) for n in range(VECTORS) for i in range(1, ROWS)]
    else:
        ids = [(n, i) for n in range(3) for i in range(ROWS) if i != 2]
    return Counter((n * ROWS + i, f"{n}-{i}") for n, i in ids)
