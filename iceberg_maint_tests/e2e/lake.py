"""What the end-to-end tests share: a configuration, and a second reader."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path

import duckdb
from pyiceberg.catalog.sql import SqlCatalog

CONFIG = """\
ledger: sqlite:///{dir}/ledger.db
catalogs:
  lake:
    type: jdbc
    uri: sqlite:///{dir}/catalog.db
    warehouse: file://{dir}/wh
spark:
  master: local[2]
  conf: {{spark.driver.memory: 1g, spark.sql.shuffle.partitions: "2"}}
defaults:
  windows: {{max_partitions_per_batch: 1}}
"""


def rows_by_duckdb(lake: Path, table: str) -> Counter[tuple[object, ...]]:
    """All rows as a multiset, read by DuckDB: a reader that neither wrote nor maintained them."""
    location = SqlCatalog("lake", uri=f"sqlite:///{lake}/catalog.db").load_table(table).metadata_location
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as duck:
        for name in ("avro", "iceberg"):
            folder = Path(importlib.import_module(f"duckdb_extension_{name}").__file__ or "").parent
            (extension,) = folder.glob(f"extensions/*/{name}.duckdb_extension")
            duck.execute(f"LOAD '{extension}'")
        rows = duck.execute("select * from iceberg_scan(?)", [location.removeprefix("file://")]).fetchall()
    return Counter(rows)
