"""What the end-to-end tests share: a configuration, sick tables, the program, and a second reader."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import duckdb
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IcebergType, LongType, NestedField, StringType

CONFIG = """\
ledger: sqlite:///{dir}/ledger.db
catalogs:
  lake:
    type: jdbc
    uri: sqlite:///{dir}/catalog.db
    warehouse: file://{dir}/wh
spark:
  master: local[{cores}]
  conf: {{spark.driver.memory: 1g, spark.sql.shuffle.partitions: "{cores}"}}
defaults:
  windows: {{max_partitions_per_batch: 1}}
"""
PARTITIONS = 3


def make_lake(folder: Path, *, cores: int = 2, more: str = "") -> Path:
    """The configuration of an empty lake in this folder; `more` is YAML to add to it."""
    config = folder / "config.yaml"
    config.write_text(CONFIG.format(dir=folder, cores=cores) + more, "utf-8")
    catalog_of(folder).create_namespace("db")
    return config


def catalog_of(folder: Path) -> SqlCatalog:
    """The lake's catalog by PyIceberg."""
    return SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/wh")


def make_table(
    folder: Path,
    name: str,
    commits: int,
    properties: Mapping[str, str] | None = None,
    key_type: IcebergType = LongType(),  # noqa: B008 - a value
) -> None:
    """A table by `p`, with one small file in each partition per commit."""
    schema = Schema(NestedField(1, "p", key_type), NestedField(2, "v", StringType()))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"))
    table = catalog_of(folder).create_table(
        name, schema, partition_spec=spec, properties=dict(properties or {})
    )
    for i in range(commits):
        values = [f"{i}-{p}" for p in range(PARTITIONS)]
        rows = {"p": list(range(PARTITIONS)), "v": values}
        table.append(pa.table(rows, schema=table.schema().as_arrow()))


def iceberg_maint(arguments: Iterable[str], config: Path) -> subprocess.CompletedProcess[str]:
    """The program as a person calls it."""
    return subprocess.run(
        [sys.executable, "-m", "iceberg_maint", *arguments, "--config", str(config)],
        capture_output=True,
        text=True,
        check=False,
    )


def rows_by_duckdb(folder: Path, table: str) -> Counter[tuple[object, ...]]:
    """All rows as a multiset, read by DuckDB: a reader that neither wrote nor maintained them."""
    return rows_at(catalog_of(folder).load_table(table).metadata_location)


def rows_at(location: str) -> Counter[tuple[object, ...]]:
    """The same of a metadata file."""
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as duck:
        for name in ("avro", "iceberg"):
            package = Path(importlib.import_module(f"duckdb_extension_{name}").__file__ or "").parent
            (extension,) = package.glob(f"extensions/*/{name}.duckdb_extension")
            duck.execute(f"LOAD '{extension}'")
        rows = duck.execute("select * from iceberg_scan(?)", [location.removeprefix("file://")]).fetchall()
    return Counter(rows)
