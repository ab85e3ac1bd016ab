"""What must hold of snapshots and files whatever housekeeping does.

I-9   every file of every retained snapshot is at its place
I-10  what is moved is reached by nothing and older than the floor; what is swept, in the trash or in place, was marked
      as long before
I-12  no file of an open attempt is moved or deleted
      reached by any catalog, configured or not
I-13  what is in use never expires: main, tags, registered readers, plans not yet done, bases of unsettled attempts,
      positions of paused writers; nor does a snapshot younger than the policy's age by the true time
"""

from __future__ import annotations

import json
import re
from itertools import pairwise

from iceberg_maint.core.model.ids import DATA_OPERATIONS
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.policy.housekeeping import DELETE_AFTER_FLOOR_SECONDS, ORPHAN_AGE_FLOOR_SECONDS
from iceberg_maint.core.removal.orphan_rules import TRASH
from iceberg_maint_tests.qualification.simulation.process import Process
from iceberg_maint_tests.qualification.simulation.rule_context import RuleContext
from iceberg_maint_tests.qualification.simulation.sim_table import SimTable, Swap

_OPEN = ("STARTED", "UNKNOWN")
_SKEW_MS = 200_000
_MARK = re.compile(rf"/{re.escape(TRASH)}/.*?(\d+)-[0-9a-f]{{16}}/")


class StorageRules:
    """What the watch demands of expiry and of the orphan scan."""

    def __init__(self, watch: RuleContext) -> None:
        self._watch = watch

    def moves(self, source: str) -> None:
        """A file is about to be moved."""
        if f"/{TRASH}/" in source:
            return
        watch, lake = self._watch, self._watch.world.lake
        watch.found["orphans moved"] += 1
        reached = lake.reaching(source)
        watch.hold("I-10", not reached, f"{source} is moved, which {reached} reach")
        file = lake.disk.stat(source)
        assert file is not None
        assert file.modified_ms is not None
        age_ms = lake.now_ms - file.modified_ms
        # A file that a snapshot had is no file that somebody is about to commit.
        committed = any(
            f.path == source for t in lake.every.values() for live in t.files.values() for f in live
        )
        watch.found["released moved"] += committed
        right = committed or age_ms >= ORPHAN_AGE_FLOOR_SECONDS * 1000
        watch.hold("I-10", right, f"{source} is moved {age_ms} ms old")
        flying = [a for a in watch.seen.attempts.values() if a.status in _OPEN and source in (a.files or ())]
        watch.hold("I-12", not flying, f"{source} is moved, which is of {flying}")

    def deletes(self, path: str) -> None:
        """A file is about to be deleted."""
        watch, lake = self._watch, self._watch.world.lake
        if path in lake.disk.lines or lake.disk.stat(path) is None:
            return
        watch.found["orphans deleted"] += 1
        if f"/{TRASH}/" not in path:
            self._deletes_in_place(path)
            return
        origin = lake.disk.origin[path]
        reached = lake.reaching(origin)
        watch.hold("I-9", not reached, f"{origin} is deleted, which {reached} reach")
        # Counted from the mark: who was stopped between its look at the lease and a move puts a file
        # under a mark that is older by now.
        (marked_ms,) = _MARK.findall(path)
        held_ms = lake.now_ms - int(marked_ms)
        right = held_ms >= DELETE_AFTER_FLOOR_SECONDS * 1000
        watch.hold("I-10", right, f"{origin} is deleted after {held_ms} ms in the trash")

    def _deletes_in_place(self, path: str) -> None:
        """A file is about to be deleted that is not in the trash: an expiry released it, and it was retained in place."""
        watch, lake = self._watch, self._watch.world.lake
        watch.found["deleted in place"] += 1
        reached = lake.reaching(path)
        watch.hold("I-9", not reached, f"{path} is deleted, which {reached} reach")
        marked = [
            json.loads(first)["header"]["marked_ms"]
            for at, (first, *lines) in lake.disk.lines.items()
            if f"/{TRASH}/in-place/" in at and any(json.loads(line)[0] == path for line in lines)
        ]
        right = bool(marked) and lake.now_ms - max(marked, default=0) >= DELETE_AFTER_FLOOR_SECONDS * 1000
        watch.hold("I-10", right, f"{path} is deleted at its place, marked at {marked}")
        flying = [a for a in watch.seen.attempts.values() if a.status in _OPEN and path in (a.files or ())]
        watch.hold("I-12", not flying, f"{path} is deleted, which is of {flying}")

    def landed(self, table: SimTable) -> None:
        """A commit of ours is in the table."""
        missing = [p for p in table.reach() if self._watch.world.lake.disk.stat(p) is None]
        self._watch.hold("I-9", not missing, f"{missing} are reached and not there")

    def expires(self, process: Process, swap: Swap) -> None:
        """An expiry has passed what it is held against, and is about to be swapped in."""
        watch = self._watch
        watch.found["expiries"] += 1
        gone, table = set(swap.expire), watch.world.lake.every[swap.base.uuid]
        used = {ref.snapshot_id: ref.name for ref in swap.base.refs}
        silence_seconds = watch.world.policy.expire_snapshots.reader_max_silence_seconds
        heard_ms = 0  # by default a reader holds for ever
        if silence_seconds is not None:
            heard_ms = watch.world.lake.now_ms - silence_seconds * 1000 + _SKEW_MS
        for row in watch.ledger.rows(f"SELECT * FROM icm_reader WHERE table_uuid = '{table.uuid}'"):
            if row["seen_ms"] >= heard_ms:
                used[row["snapshot_id"]] = f"reader {row['name']}"
        used |= _positions(swap.base)
        for attempt_id, snapshot_id in self._bases(table.uuid):
            used[snapshot_id] = f"attempt {attempt_id}"
        for batch_id, snapshot_id in self._plans(process, swap):
            used[snapshot_id] = f"plan of {batch_id}"
        taken = {used[s] for s in gone & used.keys()}
        watch.hold("I-13", not taken, f"{swap.expire} are to expire, in use by {taken}")
        age_ms = watch.world.policy.expire_snapshots.max_snapshot_age_seconds * 1000 - _SKEW_MS
        until_ms = watch.world.lake.now_ms - age_ms
        young = [
            s.snapshot_id for s in swap.base.snapshots if s.snapshot_id in gone and s.timestamp_ms > until_ms
        ]
        watch.hold("I-13", not young, f"{young} are to expire, younger than {age_ms} ms")

    def expired(self, table: SimTable, swap: Swap) -> None:
        """An expiry is in the table. A REST catalog compares no base of it."""
        if not table.by_ref:
            refs = {ref.snapshot_id for ref in swap.base.refs}
            self._watch.hold("I-13", refs <= {s.snapshot_id for s in table.state.snapshots}, "a ref is gone")

    def _bases(self, uuid: str) -> list[tuple[str, int]]:
        open_ids = {
            a.attempt_id
            for a in self._watch.seen.attempts.values()
            if a.table_uuid == uuid and a.status in _OPEN and a.operation in DATA_OPERATIONS
        }
        rows = self._watch.ledger.rows(
            "SELECT attempt_id, base_snapshot_id FROM icm_try ORDER BY attempt_id, position"
        )
        last = {r["attempt_id"]: r["base_snapshot_id"] for r in rows if r["attempt_id"] in open_ids}
        return list(last.items())

    def _plans(self, process: Process, swap: Swap) -> list[tuple[str, int]]:
        """Open batches whose plan may be younger than snapshots must be to stay."""
        watch, base = self._watch, swap.base
        age_ms = watch.world.policy.expire_snapshots.max_snapshot_age_seconds * 1000
        oldest_ms = watch.world.lake.now_ms + process.skew_ms - age_ms + _SKEW_MS
        chain = base.ancestors()
        until_ms = {s.snapshot_id: later.timestamp_ms for later, s in pairwise(chain)}
        rows = watch.ledger.rows(
            f"SELECT batch_id, operation, body FROM icm_batch WHERE table_uuid = '{base.uuid}' "
            "AND status IN ('PLANNED', 'STARTED', 'UNKNOWN')"
        )
        return [
            (row["batch_id"], snapshot_id)
            for row in rows
            if row["operation"] in DATA_OPERATIONS
            and until_ms.get(snapshot_id := json.loads(row["body"])["snapshot_id"], 0) >= oldest_ms
        ]


def _positions(base: TableState) -> dict[int, str]:
    """The newest snapshots of streaming writers, which look for their position however long they were paused."""
    newest: dict[str, int] = {}
    for snapshot in base.ancestors():
        if job := snapshot.summary.get("flink.job-id"):
            newest.setdefault(job, snapshot.snapshot_id)
    return {snapshot_id: f"writer {job}" for job, snapshot_id in newest.items()}
