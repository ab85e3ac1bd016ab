"""Small tables that are written to all the time, and what every writer was told that it had committed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from sqlalchemy.exc import OperationalError

from iceberg_maint.core.model.table_state import BATCH_PROPERTY
from iceberg_maint_tests.support.e2e.lake import PARTITIONS, catalog_of, make_lake, make_table, rows_by_duckdb

TABLES = ("db.a", "db.b", "db.c")
MIN_INPUT_FILES = 3
_MORE = f"""\
  rewrite_data_files: {{min_input_files: {MIN_INPUT_FILES}}}
  retry: {{backoff_seconds: 5, quarantine_after: 1000, quarantine_after_crashes: 1000}}
"""
"""Kills from outside are no fault of a partition: it is not held for them."""
_TRIES = 20


@dataclass
class Lake:
    """The lake in a folder. `more` is YAML for the defaults of its configuration."""

    folder: Path
    more: str = ""
    config: Path = field(init=False)
    catalog: SqlCatalog = field(init=False)
    rows: dict[str, Counter[tuple[object, ...]]] = field(default_factory=dict)
    appends: dict[str, list[int]] = field(default_factory=dict)
    _written: int = 0

    def __post_init__(self) -> None:
        self.config = make_lake(self.folder, cores=1, more=_MORE + self.more)
        self.catalog = catalog_of(self.folder)
        for name in TABLES:
            make_table(self.folder, name, 1)
            self.rows[name] = Counter((p, f"0-{p}") for p in range(PARTITIONS))
            self.appends[name] = [s.snapshot_id for s in self.table(name).snapshots()]

    def table(self, name: str) -> Table:
        return self.catalog.load_table(name)

    def append(self, name: str) -> None:
        """A small file for each partition; counts once the catalog has said that it is committed."""
        self._written += 1
        rows = [(p, f"w{self._written}-{p}") for p in range(PARTITIONS)]
        for _ in range(_TRIES):
            table = self.table(name)
            columns = {"p": [p for p, _ in rows], "v": [v for _, v in rows]}
            try:
                table.append(pa.table(columns, schema=table.schema().as_arrow()))
            except (CommitFailedException, OperationalError):
                continue
            self.rows[name].update(rows)
            head = table.current_snapshot()
            assert head is not None
            self.appends[name].append(head.snapshot_id)
            return
        raise AssertionError(f"{name}: {_TRIES} appends lost against maintenance")

    def is_healed(self, name: str) -> bool:
        """Whether no partition has files that a rewrite is due for."""
        files = self.table(name).inspect.files().to_pylist()
        return max(Counter(f["partition"]["p"] for f in files).values()) < MIN_INPUT_FILES

    def faults(self, name: str) -> list[str]:
        """What is wrong with a table: rows, commits of writers, batches committed twice."""
        found = []
        if rows_by_duckdb(self.folder, name) != self.rows[name]:
            found.append(f"{name}: rows are lost or doubled")
        metadata = self.table(name).metadata
        by_id = {s.snapshot_id: s for s in metadata.snapshots}
        at, ancestors = metadata.current_snapshot_id, set[int]()
        while at is not None:
            ancestors.add(at)
            at = by_id[at].parent_snapshot_id if at in by_id else None
        if lost := set(self.appends[name]) - ancestors:
            found.append(f"{name}: {len(lost)} commits of writers are no ancestors of main")
        if doubled := [b for b, times in self.batches(name).items() if times > 1]:
            found.append(f"{name}: batches committed more than once: {doubled}")
        return found

    def batches(self, name: str) -> Counter[str]:
        """How often each batch is in the table's history."""
        summaries = [
            s.summary.additional_properties for s in self.table(name).metadata.snapshots if s.summary
        ]
        return Counter(s[BATCH_PROPERTY] for s in summaries if BATCH_PROPERTY in s)
