"""The lake that everybody writes to at once: two catalogs, six tables, one configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from iceberg_maint_tests.qualification.surroundings.stores import Store

CONFIG = """\
ledger: {postgres}/ledger
catalogs:
  pg:
    type: jdbc
    uri: {postgres}/catalog
    warehouse: {warehouse}/pg
    properties: {properties}
  rest:
    type: rest
    uri: {rest}
    properties: {properties}
spark:
  master: local[1]
  jars: {jars}
  conf: {{spark.driver.memory: 640m, spark.sql.shuffle.partitions: "1", spark.default.parallelism: "1"}}
defaults:
  # What takes days in a lake of people takes a minute here, so that every operation has its turns.
  rewrite_data_files: {{min_input_files: 3, equality_delete_max_age_seconds: 20}}
  rewrite_position_delete_files: {{min_input_files: 2}}
  rewrite_manifests: {{max_manifests: 12}}
  expire_snapshots: {{every_seconds: 60, max_snapshot_age_seconds: 180, min_snapshots_to_keep: 5}}
  remove_orphan_files: {{every_seconds: 120, older_than_seconds: 86400, max_orphan_ratio: 1.0}}
  windows: {{cold_after_seconds: 15}}
  retry: {{backoff_seconds: 5, backoff_max_seconds: 20, quarantine_after: 1000,
          quarantine_after_crashes: 1000}}
  # Spark's own procedures are called beside us, on tables without equality deletes.
  foreign_maintainers: {{mode: ignore}}
"""

NAMESPACE = "chaos"
TOKEN = "chaos.token"
"""Summary key by which a foreign commit is known again."""
UNPARTITIONED = 0
"""Id of the spec every table starts with; equality deletes of it hold for the whole table."""

NOTE = 5
"""Field id of the column that is renamed on the way."""
MODELLED = (1, 2, 3, 4, NOTE)
"""Field ids of the columns that the model knows; others come and go."""

Row = tuple[int, int, int, int, str]
"""id, p, g, v, note."""


@dataclass(frozen=True, slots=True)
class ChaosTable:
    """One table; `upserts` is whether equality deletes are written to it. Iceberg's stock maintenance,
    which is not safe beside those, works on the others."""

    catalog: str
    name: str
    version: int
    upserts: bool

    def __str__(self) -> str:
        return f"{self.catalog}.{NAMESPACE}.{self.name}"


TABLES = tuple(
    ChaosTable(catalog, f"{kind}_v{version}", version, kind == "cdc")
    for catalog, kind, version in (
        ("pg", "cdc", 2),
        ("pg", "cdc", 3),
        ("pg", "etl", 3),
        ("rest", "cdc", 2),
        ("rest", "cdc", 3),
        ("rest", "etl", 2),
    )
)

COLUMNS = "id bigint, p int, g int, v int, note string"
PROPERTIES = {
    "write.merge.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.delete.mode": "merge-on-read",
    # Writers that only know what they themselves wrote need no more.
    "write.merge.isolation-level": "snapshot",
    "write.update.isolation-level": "snapshot",
    "write.delete.isolation-level": "snapshot",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "30",
    # Nobody here gives up sooner than Iceberg's own default, four retries.
    "commit.retry.num-retries": "4",
}

# Whose keys are whose: a key has one writer that puts it, and at most one that deletes it.
UPSERTED = range(1, 161)
MERGED = range(1001, 1121)
FIRST_APPENDED = 10_000
FIRST_APPENDED_PARTITION = 100
SLOT_SECONDS = 90
"""Appended rows of so much time share a partition, as days do elsewhere."""


@dataclass(frozen=True, slots=True)
class Place:
    """Folder of one run and what lies in it."""

    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "iceberg_maint.yaml"

    def journal(self, role: str) -> Path:
        return self.folder / f"{role}.jsonl"

    def said(self, role: str) -> Path:
        return self.folder / f"{role}.log"

    def prepare(self, postgres: str, rest: str, store: Store, jars: Sequence[Path]) -> None:
        """Writes the configuration; `postgres` is the server's address without a database, `jars` are those of the
        store's client."""
        text = CONFIG.format(
            postgres=postgres,
            rest=rest,
            warehouse=store.warehouse,
            properties=store.properties_yaml(),
            jars=[str(jar) for jar in jars],
        )
        self.config.write_text(text, encoding="utf-8")
