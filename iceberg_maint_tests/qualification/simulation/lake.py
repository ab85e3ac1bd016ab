"""A lake of plain values whose tables know their rows: snapshots, compare-and-swap, foreign writers.

A row is an integer, its key the row over 1,000. A data file holds rows, an equality delete keys, a position
delete the rows it marks. Unlike `support.fakes.catalog`, which holds what a table is, it knows rows and takes commits.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.table_state import FileKind, LiveFile
from iceberg_maint_tests.qualification.simulation.disk import Disk
from iceberg_maint_tests.qualification.simulation.sim_table import Landed, SimTable
from iceberg_maint_tests.support.core.values import BY_P

KEY = 1000
BYTES_PER_ROW = 5


class Lake:
    """The tables by name, all that ever were by UUID, and the content of every file ever written. `others` are tables
    as catalogs have them that are not configured."""

    def __init__(self, choose: random.Random, *, by_ref: bool) -> None:
        self.choose = choose
        self.by_ref = by_ref
        self.now_ms = 0
        self.changes = 0
        self.tables: dict[TableId, SimTable] = {}
        self.every: dict[str, SimTable] = {}
        self.others: list[SimTable] = []
        self.content: dict[str, frozenset[int]] = {}
        self.disk = Disk(lambda: self.now_ms)
        self._ids = 1000
        self._keys = 0

    def new_id(self) -> int:
        self._ids += 1
        return self._ids

    def create(self, name: TableId) -> SimTable:
        """A new table, in the place of the one that has the name."""
        uuid = f"uuid-{len(self.every)}"
        table = SimTable(self, name, uuid, by_ref=self.by_ref)
        self.tables[name] = self.every[uuid] = table
        self.changes += 1
        return table

    def reaching(self, path: str) -> list[str]:
        """The tables, of all catalogs, that need a file."""
        return [f"{t.uuid} {t.line}" for t in (*self.every.values(), *self.others) if path in t.reach()]

    def landed(self) -> Iterable[Landed]:
        return (one for table in self.every.values() for one in table.landed)

    def new_file(
        self,
        table: SimTable,
        partition: str,
        content: Iterable[int],
        number: int,
        kind: FileKind = FileKind.DATA,
        of: str | None = None,
    ) -> LiveFile:
        """A file that nothing refers to yet, its size by its content."""
        rows = frozenset(content)
        path = f"{table.location}/data/{partition}/{kind.value}-{self.new_id()}"
        self.content[path] = rows
        self.disk.put(path, max(1, BYTES_PER_ROW * len(rows)))
        return LiveFile(
            path,
            kind,
            BY_P.spec_id,
            partition,
            len(rows),
            max(1, BYTES_PER_ROW * len(rows)),
            number,
            "parquet",
            referenced_data_file=of,
            equality_ids=(1,) if kind is FileKind.EQUALITY_DELETES else (),
            file_sequence_number=number,
        )

    def left_of(self, file: LiveFile, deletes: Iterable[LiveFile]) -> frozenset[int]:
        """The rows of a data file that these deletes, where they apply to it, leave visible (Iceberg spec,
        "Scan Planning")."""
        rows = self.content[file.path]
        for delete in deletes:
            if delete.kind is FileKind.EQUALITY_DELETES:
                if delete.partition == file.partition and (
                    file.data_sequence_number < delete.data_sequence_number
                ):
                    keys = self.content[delete.path]
                    rows = frozenset(r for r in rows if r // KEY not in keys)
            elif delete.referenced_data_file in (None, file.path) and (
                delete.partition == file.partition
                and file.data_sequence_number <= delete.data_sequence_number
            ):
                rows -= self.content[delete.path]
        return rows

    def visible(self, live: Iterable[LiveFile]) -> list[int]:
        files = tuple(live)
        deletes = [f for f in files if f.kind is not FileKind.DATA]
        data = (f for f in files if f.kind is FileKind.DATA)
        return sorted(row for f in data for row in self.left_of(f, deletes))

    # foreign writers, each in one commit

    def write(self, table: SimTable) -> None:
        """An append, upsert, delete by position or of whole files, or another engine's compaction."""
        partition = f"p={self.choose.choice('abc')}"
        live = [f for f in table.live if f.partition == partition and f.kind is FileKind.DATA]
        acts = ["append", "append", "upsert", "mark", "remove", "compact"] if live else ["append"]
        getattr(self, f"_{self.choose.choice(acts)}")(table, partition, live)

    def append(self, table: SimTable, partition: str, files: int) -> None:
        number = table.next_number()
        new = [self.new_file(table, partition, self._new_rows(2), number) for _ in range(files)]
        table.commit((*table.live, *new), "append")

    def upsert(self, table: SimTable, partition: str, files: int = 1) -> None:
        """New versions of some live keys: equality deletes, and data of the same commit."""
        number = table.next_number()
        live = [f for f in table.live if f.partition == partition and f.kind is FileKind.DATA]
        added = []
        for file in self.choose.sample(live, min(files, len(live))):
            rows = sorted(self.content[file.path])
            key = self.choose.choice(rows) // KEY
            newest = max(r for rows in self.content.values() for r in rows if r // KEY == key)
            added.append(self.new_file(table, partition, [key], number, FileKind.EQUALITY_DELETES))
            added.append(self.new_file(table, partition, [newest + 1], number))
        table.commit((*table.live, *added), "overwrite")

    def compact(self, table: SimTable, partition: str) -> None:
        """Every data file of the partition is written again, so that there is as much to do as before."""
        live = [f for f in table.live if f.partition == partition and f.kind is FileKind.DATA]
        deletes = [f for f in table.live if f.kind is not FileKind.DATA]
        paths = {f.path for f in live}
        number = table.next_number()
        rewritten = [
            self.new_file(table, partition, rows, number)
            for rows in (self.left_of(f, deletes) for f in live)
            if rows
        ]
        kept = (f for f in table.live if f.path not in paths and f.referenced_data_file not in paths)
        table.commit((*kept, *rewritten), "replace")

    def register(self, table: SimTable, files: Iterable[LiveFile]) -> None:
        """Files that were written before, as `add_files` commits them: with a sequence number of this commit."""
        number = table.next_number()
        new = [replace(f, data_sequence_number=number, file_sequence_number=number) for f in files]
        table.commit((*table.live, *new), "append")

    def _append(self, table: SimTable, partition: str, _live: list[LiveFile]) -> None:
        self.append(table, partition, self.choose.randint(1, 6))

    def _upsert(self, table: SimTable, partition: str, _live: list[LiveFile]) -> None:
        self.upsert(table, partition, self.choose.randint(1, 2))

    def _mark(self, table: SimTable, partition: str, live: list[LiveFile]) -> None:
        file = self.choose.choice(live)
        row = self.choose.choice(sorted(self.content[file.path]))
        scope = self.choose.choice([file.path, None])
        delete = self.new_file(
            table, partition, [row], table.next_number(), FileKind.POSITION_DELETES, of=scope
        )
        table.commit((*table.live, delete), "overwrite")

    def _remove(self, table: SimTable, partition: str, live: list[LiveFile]) -> None:
        gone = self.choose.choice(live).path
        named = [f for f in table.live if gone not in (f.path, f.referenced_data_file)]
        table.commit(named, "delete")

    def _compact(self, table: SimTable, partition: str, live: list[LiveFile]) -> None:
        deletes = [f for f in table.live if f.kind is not FileKind.DATA]
        paths = {f.path for f in live}
        rows = [r for f in live for r in self.left_of(f, deletes)]
        merged = [self.new_file(table, partition, rows, table.next_number())] if rows else []
        kept = (f for f in table.live if f.path not in paths and f.referenced_data_file not in paths)
        table.commit((*kept, *merged), "replace")

    def new_key(self) -> int:
        self._keys += 1
        return self._keys

    def _new_rows(self, count: int) -> list[int]:
        return [self.new_key() * KEY for _ in range(count)]


def twice(rows: Iterable[int]) -> list[int]:
    """Rows that are there more than once."""
    return sorted(row for row, times in Counter(rows).items() if times > 1)
