"""What users do to their tables that a protocol easily forgets: paths that are registered again, catalogs that are not
configured or restored, clocks that jump, writers that are paused for longer than any age."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from iceberg_maint.core.model.table_state import FileKind, LiveFile
from iceberg_maint_tests.qualification.simulation.lake import KEY, Lake
from iceberg_maint_tests.qualification.simulation.process import Process
from iceberg_maint_tests.qualification.simulation.sim_table import SimTable

if TYPE_CHECKING:
    from iceberg_maint_tests.qualification.simulation.world import World

_SHARE = 0.25
JUMPS_MS = tuple(sign * ms for sign in (1, -1) for ms in (600_000, 3_600_000, 30 * 86_400_000))
"""Beyond the tolerance of clocks, both ways."""


class Hazards:
    """Each world has some of them, drawn apart from all else: a world without any goes as it did before."""

    def __init__(self, world: World) -> None:
        self.world, self.choose = world, random.Random(f"{world.seed} hazards")
        self.shelf: list[tuple[SimTable, LiveFile]] = []
        self.jumps: list[tuple[Process, int]] = []
        self.checkpoints = 0
        kinds: list[list[tuple[Callable[[], None], int]]] = [
            [(self.register_again, 4), (self.take_out, 2), (self.put_back, 3), (self.undelete, 2)],
            [(self.second_catalog, 1), (self.commit_elsewhere, 2)],
            [(self.restore_pointer, 1)],
            [(self.machine_jumps, 2), (self.ledger_jumps, 1), (self.store_jumps, 1), (self.clocks_agree, 2)],
            [(self.checkpoint, 2)],
        ]
        self.acts = [act for kind in kinds if self.choose.random() < _SHARE for act in kind]

    def end(self) -> None:
        """The operator keeps the table in one catalog, as the fix of ICM-111 says."""
        for other in self.world.lake.others:
            logged = self._logged()
            for location in [*other.former, other.state.metadata_location]:
                if location not in logged:
                    self.world.lake.disk.delete(location)
        self.world.lake.others.clear()
        for process, jump_ms in self.jumps:
            process.skew_ms -= jump_ms

    def _logged(self) -> set[str]:
        tables = self.world.lake.every.values()
        return {at for t in tables for at in (*t.former, t.state.metadata_location)}

    # paths

    def register_again(self) -> None:
        """Files are taken out and registered again, with or without a delete between."""
        table = self._table()
        files = self._some_files(table)
        if files:
            register_again(self.world.lake, table, files, self.choose.choice(["", "key", "position"]))
            self.world.watch.found["files registered again"] += 1

    def take_out(self) -> None:
        table = self._table()
        files = self._some_files(table)
        if files:
            remove(table, files)
            self.shelf += [(table, file) for file in files]

    def put_back(self) -> None:
        """Of the files that were taken out, those that a snapshot has still, and no other live file has their rows."""
        lake = self.world.lake
        for table, file in self.shelf:
            there = {row for f in table.live if f.kind is FileKind.DATA for row in lake.content[f.path]}
            if file.path in table.reach() and lake.content[file.path].isdisjoint(there):
                lake.register(table, [file])
                self.world.watch.found["files put back"] += 1
        self.shelf.clear()

    def undelete(self) -> None:
        """A delete file is taken out: its rows are back."""
        table = self._table()
        deletes = [f for f in table.live if f.kind is not FileKind.DATA]
        if deletes and not self._has_twins(table):
            gone = self.choose.choice(deletes)
            table.commit([f for f in table.live if f is not gone], "delete")
            self.world.watch.found["deletes taken back"] += 1

    def _has_twins(self, table: SimTable) -> bool:
        rows = [row for f in table.live if f.kind is FileKind.DATA for row in self.world.lake.content[f.path]]
        return len(rows) != len(set(rows))

    def _some_files(self, table: SimTable) -> list[LiveFile]:
        data = [f for f in table.live if f.kind is FileKind.DATA]
        if not data or self._has_twins(table):
            return []
        partition = self.choose.choice(data).partition
        among = [f for f in data if f.partition == partition]
        return self.choose.sample(among, min(len(among), self.choose.randint(1, 3)))

    # catalogs

    def second_catalog(self) -> None:
        """A catalog that is not configured gets the table, and commits to it: twice, since one metadata file that is in no
        log may be that of a commit that failed."""
        table = self._table()
        if not any(other.uuid == table.uuid for other in self.world.lake.others):
            other = table.second_line()
            for _ in range(2):
                self.world.lake.append(other, "p=a", 1)
            self.world.watch.found["second catalogs"] += 1

    def commit_elsewhere(self) -> None:
        for other in self.world.lake.others:
            self.world.lake.append(other, f"p={self.choose.choice('abc')}", 1)

    def restore_pointer(self) -> None:
        """The operator ends all runs and restores the catalog: another one reaches what was left. Not where a swap is on
        its way, or where an attempt at the table is open."""
        world, table = self.world, self._table()
        if len(table.former) <= 4 or world.lake.others or world.late:
            return
        for process in world.processes:
            if not process.ended:
                process.kill()
        if not world.ledger.work.open_attempts(table.uuid):
            table.restore_pointer(self.choose.randint(2, 4))
            world.shown_until.clear()
            world.watch.found["pointers restored"] += 1

    # clocks

    def machine_jumps(self) -> None:
        """The clock of one machine is set while a run is at work."""
        living = [p for p in self.world.processes if not p.dead and not p.ended]
        if living:
            process = self.choose.choice(living)
            jump_ms = self.choose.choice(JUMPS_MS)
            process.skew_ms += jump_ms
            self.jumps.append((process, jump_ms))
            # Its back-off is by both clocks.
            self.world.watch.retries.unaware.add(process.request.run_id)
            self.world.watch.found["clocks that jumped"] += 1

    def ledger_jumps(self) -> None:
        self.world.ledger_ahead_ms = self.choose.choice(JUMPS_MS)
        self.world.watch.found["clocks that jumped"] += 1

    def store_jumps(self) -> None:
        self.world.store_ahead_ms = self.choose.choice(JUMPS_MS)
        self.world.watch.found["clocks that jumped"] += 1

    def clocks_agree(self) -> None:
        self.world.ledger_ahead_ms = self.world.store_ahead_ms = 0

    # writers

    def checkpoint(self) -> None:
        """A Flink job commits, and may be paused for ever after."""
        self.checkpoints += 1
        checkpoint(self.world.lake, self._table(), f"job-{self.choose.randint(0, 2)}", self.checkpoints)
        self.world.watch.found["checkpoints"] += 1

    def _table(self) -> SimTable:
        return self.choose.choice(list(self.world.lake.tables.values()))


def remove(table: SimTable, files: list[LiveFile]) -> None:
    """Data files go, and the position deletes of each."""
    gone = {f.path for f in files}
    kept = [f for f in table.live if f.path not in gone and f.referenced_data_file not in gone]
    table.commit(kept, "delete")


def register_again(lake: Lake, table: SimTable, files: list[LiveFile], between: str = "") -> None:
    """Data files go and come back by the same paths; a delete between reached them as they were."""
    remove(table, files)
    file, number = files[0], table.next_number()
    row = min(lake.content[file.path])
    if between == "key":
        key = lake.new_file(table, file.partition, [row // KEY], number, FileKind.EQUALITY_DELETES)
        table.commit((*table.live, key), "delete")
    if between == "position":
        marks = lake.new_file(table, file.partition, [row], number, FileKind.POSITION_DELETES)
        table.commit((*table.live, marks), "delete")
    lake.register(table, files)


def checkpoint(lake: Lake, table: SimTable, job: str, number: int) -> None:
    """A Flink job's commit, whose summary says how far the job has come."""
    new = lake.new_file(table, "p=a", [lake.new_key() * KEY], table.next_number())
    position = {"flink.job-id": job, "flink.operator-id": "sink"}
    table.commit((*table.live, new), "append", {**position, "flink.max-committed-checkpoint-id": str(number)})
