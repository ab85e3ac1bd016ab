"""The whole product on one lake whose time the tests set: data, manifests, snapshots and orphans."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from iceberg_maint.catalog.local_store import LocalStore
from iceberg_maint.catalog.location_owners import FleetLocationOwners
from iceberg_maint.catalog.reachable_files import MetadataWalk
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.removal.orphan_rules import TRASH
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.removal.remove_orphans import CleanupContext, OrphanRemoval
from iceberg_maint_tests.qualification.program.kinds import KINDS
from iceberg_maint_tests.qualification.program.second_catalog import SecondCatalog
from iceberg_maint_tests.qualification.program.wide import Wide, WideWriters
from iceberg_maint_tests.support.catalog.claim_memory import ClaimMemory
from iceberg_maint_tests.support.spark.equality.maintainer import MachineClock, Maintainer

HOUR_MS = 3_600_000


@dataclass
class SetClock(MachineClock):
    """The machine's, so far ahead."""

    ahead_ms: int = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class SetStore(LocalStore):
    """The local file system, by a clock that is ahead."""

    def __init__(self, clock: SetClock) -> None:
        self._clock = clock

    def now_ms(self, folder: str) -> int:
        return super().now_ms(folder) + self._clock.ahead_ms


@dataclass
class Keeper(Maintainer):
    """Keeps wide tables. Files are as old as the set clock makes them: see `settle_times`."""

    time: SetClock = field(default_factory=SetClock)
    _timed: set[Path] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.clock = self.time
        self.writers = WideWriters(Bridge(self.spark))
        self._claims = FleetLocationOwners({"lake": self.catalog}, ClaimMemory())
        self.second_catalog = SecondCatalog(self.writers.bridge, self.lake_dir)

    def make(self, version: int, partitioned_by: str, kinds: dict[str, str], **properties: str) -> Wide:
        """A new table of `tag`, the partition columns p, q and d, and these columns by kind."""
        self.time.ahead_ms = 0
        self.ledger.leases.accept_clock()
        name = f"lake.program.t{next(self._names)}"
        table = self.writers.create(
            name,
            "tag int, p int, q int, d date",
            version=version,
            partitioned_by=partitioned_by,
            properties=properties,
        )
        update = table.updateSchema()
        for column, kind in kinds.items():
            update.addColumn(column, self.writers.type_of(kind))
        update.commit()
        return Wide(self.writers, name)

    def drop(self, twin: Wide) -> None:
        """The table and its files go."""
        folder = self.folder(twin)
        self.writers.sql(f"drop table {twin.name}")
        shutil.rmtree(folder)
        self._timed.clear()

    def folder(self, twin: Wide) -> Path:
        """Where the table's files are."""
        return Path(str(twin.table.location()).removeprefix("file:"))

    def point(self, twin: Wide, location: str) -> None:
        """Sets the catalog's pointer, as the restore of a backup of its database does."""
        name = twin.name.rpartition(".")[2]
        with closing(sqlite3.connect(self.lake_dir / "catalog.db")) as database, database:
            done = database.execute(
                "update iceberg_tables set metadata_location = ? where catalog_name = 'lake' "
                "and table_namespace = 'program' and table_name = ?",
                (location, name),
            )
        assert done.rowcount == 1, f"{done.rowcount} entries of {name}"

    # time

    def settle_times(self, twin: Wide) -> None:
        """Files written since the last call are as old as the clock was ahead then."""
        for path in self.files(twin):
            if path not in self._timed:
                self._timed.add(path)
                at = path.stat().st_mtime_ns + self.time.ahead_ms * 1_000_000
                os.utime(path, ns=(at, at))

    def pass_time(self, twin: Wide, hours: int) -> None:
        """The clock goes on; what is there is so much older."""
        self.settle_times(twin)
        self.time.ahead_ms += hours * HOUR_MS

    def age_ms(self, path: Path) -> int:
        """By the store's clock."""
        return self.time.now_ms() - path.stat().st_mtime_ns // 1_000_000

    def files(self, twin: Wide) -> list[Path]:
        """All but those in the trash."""
        return [
            Path(folder) / name
            for folder, _, names in os.walk(self.folder(twin))
            if TRASH not in folder
            for name in names
            if not name.startswith(".")
        ]

    def timed(self, path: Path) -> None:
        """The file is as old as it says."""
        self._timed.add(path)

    def trashed(self, twin: Wide) -> list[Path]:
        """Files in the trash."""
        return [p for p in (self.folder(twin) / TRASH).rglob("*") if p.is_file()]

    def trash(self, twin: Wide) -> set[str]:
        """Their names."""
        return {p.name for p in self.trashed(twin)}

    def orphan_files(self, _table: TableId) -> OrphanRemoval:
        """A pass by the set clock."""
        around = CleanupContext(
            others=self._claims.others,
            store=lambda _state: SetStore(self.time),
            reachability=lambda state: MetadataWalk(self.catalog, state.table, state.uuid),
            scratch=self.lake_dir / "orphan_scratch",
            now_ms=self.time.now_ms,
        )
        return OrphanRemoval(around)


ALL_KINDS = tuple(k for k in KINDS if k not in ("long_decimal", "keyed_struct"))
