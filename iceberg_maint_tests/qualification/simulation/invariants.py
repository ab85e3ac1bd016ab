"""What must hold after every step: read from the ledger's rows and the lake, not from the code's own words.

I-12  no file of an attempt that was given up is ever in the table
I-14  fences in ancestry never decrease; a batch has one effect; a lease is not taken from a living owner
I-16  STARTED → INTENT → ATTEMPT → OUTCOME → CURSOR, each by the holder of the lease; what ended stays
I-19  nothing is reported committed that is not in the table
I-20  tries within their budget, back-off and quarantine respected, crashes counted apart from failures
I-21  (in `settled_in_the_end`) no attempt stays open, what is due is done, every run has its record
Rows  no commit of ours changes what a reader sees
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from iceberg_maint.core.commits.change import Violation, is_stale
from iceberg_maint.core.model.codec import loads
from iceberg_maint.core.model.ids import ALL_OPERATIONS, Operation
from iceberg_maint.core.outcomes.outcome import SUCCESSFUL, CommitStatus, OutcomeStatus
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.loop.maintain import BatchEnded, Event, OperationEnded
from iceberg_maint.loop.settle import Settled
from iceberg_maint_tests.qualification.simulation.lake import twice
from iceberg_maint_tests.qualification.simulation.ledger_rows import (
    CLEAN,
    Attempted,
    Key,
    LedgerRows,
    Past,
    Seen,
)
from iceberg_maint_tests.qualification.simulation.process import Process
from iceberg_maint_tests.qualification.simulation.retries import Retries
from iceberg_maint_tests.qualification.simulation.rule_context import WatchedWorld
from iceberg_maint_tests.qualification.simulation.sim_table import SimTable
from iceberg_maint_tests.qualification.simulation.storage_rules import StorageRules
from iceberg_maint_tests.qualification.simulation.violations import DefectError, ViolationError

_LEAVING_A_TOKEN = frozenset(ALL_OPERATIONS) - {Operation.EXPIRE_SNAPSHOTS, Operation.REMOVE_ORPHAN_FILES}


class Watch:
    """Looks at the world after every step."""

    def __init__(self, world: WatchedWorld) -> None:
        self.world = world
        self.caller: Process | None = None
        self.seen = Seen()
        self.changes = -1
        self.found: Counter[str] = Counter()
        self.violation: AssertionError | None = None
        self.ledger = LedgerRows(world.connection)
        self.retries = Retries(self)
        self.storage = StorageRules(self)
        # Attempts whose rows a restored backup does not have as they were.
        self.forgotten: set[str] = set()

    def fail(self, invariant: str, fact: str) -> None:
        """Raises ViolationError; the first one is kept, for it may be raised where nobody looks."""
        raise self._keep(ViolationError(f"{invariant}: {self._told(fact)}"))

    def hold(self, invariant: str, true: object, fact: str) -> None:
        if not true:
            self.fail(invariant, fact)

    # told as it happens

    def landed(self, table: SimTable, before: list[int]) -> None:
        """A commit of ours is in the table."""
        self.found["commits of ours"] += 1
        ours = table.landed[-1]
        after = table.rows()
        self.hold("Rows", before == after, f"{ours} changed the visible rows")
        self.storage.landed(table)
        self.hold("Rows", not twice(after), f"rows twice: {twice(after)}")
        of_table = {o.snapshot_id: o for o in table.landed}
        chain = [of_table[s.snapshot_id] for s in table.state.ancestors() if s.snapshot_id in of_table]
        fences = [o.fence for o in reversed(chain)]
        self.hold("I-14", fences == sorted(fences), f"fences in ancestry: {fences}")
        for name, values in (
            ("token", [o.token for o in table.landed]),
            ("fence and batch", [(o.fence, o.batch_id) for o in table.landed]),
            ("batch in ancestry", [o.batch_id for o in chain]),
        ):
            self.hold("I-14", len(values) == len(set(values)), f"{name} twice: {values}")
        attempt = next((a for a in self.seen.attempts.values() if a.token == ours.token), None)
        if attempt is None or attempt.attempt_id in self.forgotten:
            return
        self.hold("I-16", attempt.tries, f"{ours} has no ATTEMPT")
        self.hold("I-12", not attempt.given_up, f"attempt {attempt} was given up and is in the table")

    def gated(self, batch_id: str, violations: Sequence[Violation]) -> None:
        """The gate refused a commit: its plan is out of date, or something else is corrupt."""
        self.found["commits that the gate refused as stale"] += 1
        for violation in violations:
            self.found[f"gate: {violation.rule}"] += 1
        self.hold("Gate", is_stale(violations), f"{batch_id}: {'; '.join(map(str, violations))}")

    def event(self, process: Process, event: Event) -> None:
        """What a run tells its observer."""
        if isinstance(event, BatchEnded):
            outcome = event.outcome
            self.found[f"batch {outcome.outcome}"] += 1
            if outcome.outcome in SUCCESSFUL:
                self._in_table("I-19", process.request.run_id, outcome.batch_id)
        if isinstance(event, OperationEnded) and event.outcome.outcome is OutcomeStatus.IMPROVED:
            improved = [b for b in event.outcome.batches if b.outcome is OutcomeStatus.IMPROVED]
            self.hold("I-19", improved, f"{event.outcome} without a batch that improved")

    def settled(self, settled: Iterable[Settled]) -> None:
        for one in settled:
            if one.settlement.status is not CommitStatus.REJECTED:
                self.hold("I-12", not one.leftover_bytes, f"bytes of {one} are called left over")

    def called(self, process: Process, name: str, args: Any, result: Any) -> None:
        """A call of the ledger returned."""
        if name == "holds" and result:
            lease = args[0]
            owner, fence, expires_ms = self.ledger.lease(lease.table_uuid)
            mine = (owner, fence) == (lease.owner, lease.fence) and expires_ms > self.world.lake.now_ms
            self.hold("I-14", mine, f"{process.request.run_id} is told it holds {lease}")
        if name == "set_partition_history":
            self.look_again()

    def out_of_order(self, process: Process, name: str, why: Exception) -> None:
        if not self.world.restored:
            self.fail("I-16", f"{process.request.run_id} called {name} out of order: {why}")

    def broken(self, process: Process, why: Exception) -> None:
        self._keep(DefectError(self._told(f"{process.request.run_id} ended by {why!r}")))

    def _told(self, fact: str) -> str:
        return f"{fact} (seed {self.world.seed})\n{self.world.story()}"

    def _keep(self, found: AssertionError) -> AssertionError:
        self.violation = self.violation or found
        return found

    # after every step

    def check(self) -> None:
        """Reads what changed in the ledger."""
        if self.ledger.total_changes == self.changes:
            return
        self.changes = self.ledger.total_changes
        self._leases()
        before = dict(self.seen.pasts)
        self.seen.pasts = self.ledger.pasts()
        self._attempts(before)
        self._intents_and_tries()
        self._outcomes(before)
        self._batches()
        self._cursors()
        self._records()

    def look_again(self) -> None:
        """Somebody other than an attempt has changed back-off and quarantine."""
        self.seen.pasts = self.ledger.pasts()
        for attempt in self.seen.attempts.values():
            attempt.before = {}

    def released(self) -> None:
        """An operator has; runs at work go on with what they read before."""
        self.look_again()
        self._runs_know_what_was()

    def _runs_know_what_was(self) -> None:
        self.retries.unaware |= {p.request.run_id for p in self.world.processes if not p.ended}

    def start_over(self) -> None:
        """The ledger is that of a backup by now."""
        self._runs_know_what_was()
        known, self.seen = self.seen.attempts, Seen()
        self.changes = -1
        caller, self.caller = self.caller, None
        self._leases()
        self.seen.pasts = self.ledger.pasts()
        for row in self.ledger.rows("SELECT * FROM icm_attempt ORDER BY ordinal"):
            self._remember(row, {})
        for name in ("attempt", "outcome", "record"):
            (top,) = self.ledger.rows(f"SELECT COALESCE(MAX(ordinal), 0) AS top FROM icm_{name}")
            self.seen.last[name] = top["top"]
        self._read_intents_and_tries()
        for row in self.ledger.rows(
            "SELECT attempt_id, status, settled, partitions FROM icm_outcome ORDER BY ordinal"
        ):
            attempt = self.seen.attempts[row["attempt_id"]]
            attempt.status = row["status"]
            if not row["settled"]:
                attempt.handed_back = row["partitions"] == "[]"
        self.seen.batches = self.ledger.batches()
        self.seen.cursors = self.ledger.cursors()
        for attempt_id, was in known.items():
            now = self.seen.attempts.get(attempt_id)
            if now is None or now.tries != was.tries:
                self.forgotten.add(attempt_id)
        self.caller = caller

    def _leases(self) -> None:
        now_ms = self.world.lake.now_ms
        leases = {
            r["table_uuid"]: (r["owner"], r["fence"], r["expires_ms"])
            for r in self.ledger.rows("SELECT table_uuid, owner, fence, expires_ms FROM icm_lease")
        }
        for uuid, (owner, fence, _) in leases.items():
            if uuid not in self.seen.leases:
                continue
            past_owner, past_fence, past_expires_ms = self.seen.leases[uuid]
            self.hold("I-14", fence >= past_fence, f"fence of {uuid} went from {past_fence} to {fence}")
            if owner is None or owner == past_owner:
                continue
            self.found["leases taken over"] += past_owner is not None
            self.hold("I-14", fence > past_fence, f"{owner} has the lease under the fence of {past_owner}")
            living = past_owner is not None and past_expires_ms > now_ms
            self.hold("I-14", not living, f"{owner} took the living lease of {past_owner} on {uuid}")
        self.seen.leases = leases

    def _attempts(self, before: dict[Key, Past]) -> None:
        rows = self.ledger.rows(
            f"SELECT * FROM icm_attempt WHERE ordinal > {self.seen.last['attempt']} ORDER BY ordinal"
        )
        for row in rows:
            self.seen.last["attempt"] = row["ordinal"]
            attempt = self._remember(row, before)
            self.found["attempts"] += 1
            self._by_holder(attempt.table_uuid, attempt.fence, f"STARTED of {attempt.batch_id}")
            status, _ = self.seen.batches.get(attempt.batch_id, ("PLANNED", 0))
            self.hold("I-16", status == "PLANNED", f"{attempt} of a batch that is {status}")
            self.retries.may_start(attempt, before)

    def _remember(self, row: dict[str, Any], pasts: dict[Key, Past]) -> Attempted:
        partitions = tuple(json.loads(row["partitions"]))
        which = row["table_uuid"], row["operation"]
        attempt = Attempted(
            row["attempt_id"],
            row["batch_id"],
            *which,
            row["run_id"],
            row["fence"],
            row["token"],
            partitions,
            {p: pasts.get((*which, p), CLEAN) for p in partitions},
        )
        self.seen.attempts[attempt.attempt_id] = attempt
        return attempt

    def _intents_and_tries(self) -> None:
        for attempt, what in self._read_intents_and_tries():
            self._by_holder(attempt.table_uuid, attempt.fence, f"{what} of {attempt.attempt_id}")
            if what == "ATTEMPT":
                self.hold("I-16", attempt.files is not None, f"ATTEMPT of {attempt} before its INTENT")
                limit = self.world.policy.retry.commit_tries
                self.hold("I-20", attempt.tries <= limit, f"{attempt.tries} tries of {attempt}")
            self.hold("I-16", attempt.status == "STARTED", f"{what} of {attempt}, which has ended")

    def _read_intents_and_tries(self) -> list[tuple[Attempted, str]]:
        new = []
        for row in self.ledger.rows(
            f"SELECT rowid AS r, attempt_id, files FROM icm_intent WHERE rowid > {self.seen.intents}"
        ):
            self.seen.intents = max(self.seen.intents, row["r"])
            attempt = self.seen.attempts[row["attempt_id"]]
            attempt.files = frozenset(f["path"] for f in json.loads(row["files"]))
            new.append((attempt, "INTENT"))
        for row in self.ledger.rows(
            f"SELECT rowid AS r, attempt_id FROM icm_try WHERE rowid > {self.seen.tries}"
        ):
            self.seen.tries = max(self.seen.tries, row["r"])
            attempt = self.seen.attempts[row["attempt_id"]]
            attempt.tries += 1
            new.append((attempt, "ATTEMPT"))
        return new

    def _outcomes(self, before: dict[Key, Past]) -> None:
        rows = self.ledger.rows(
            f"SELECT * FROM icm_outcome WHERE ordinal > {self.seen.last['outcome']} ORDER BY ordinal"
        )
        landed = tuple(self.world.lake.landed()) if rows else ()
        tokens = {o.token for o in landed}
        for row in rows:
            self.seen.last["outcome"] = row["ordinal"]
            attempt, status = self.seen.attempts[row["attempt_id"]], row["status"]
            self.found[f"{'settled' if row['settled'] else 'reported'} {status}"] += 1
            ended = attempt.status not in ("STARTED", "UNKNOWN")
            self.hold("I-16", not ended, f"{status} of {attempt}, which has ended {attempt.status}")
            self._by_holder(attempt.table_uuid, None if row["settled"] else attempt.fence, f"{status}")
            commits = attempt.operation != Operation.REMOVE_ORPHAN_FILES
            if status in ("DONE", "UNKNOWN") and attempt.attempt_id not in self.forgotten:
                self.hold("I-16", attempt.tries or not commits, f"{attempt} is {status} without an ATTEMPT")
            if status == "DONE" and attempt.operation in _LEAVING_A_TOKEN:
                # Another attempt that reused these files may have committed them, and a ledger put back
                # does not know of it.
                own = attempt.token in tokens or any(o.files & (attempt.files or set()) for o in landed)
                self.hold("I-19", own, f"{attempt} is DONE and not in the table")
            if status in ("FAILED", "SUPERSEDED"):
                attempt.given_up = True
                if row["settled"]:
                    # Of a commit that was rolled back and has expired nothing is in the table.
                    lost = attempt.token in self._retained(attempt.table_uuid)
                else:
                    # A ledger put back may not know that a commit is on its way.
                    lost = attempt.token in tokens and attempt.attempt_id not in self.forgotten
                self.hold("I-12", not lost, f"{attempt} is given up and in the table")
            attempt.status = status
            if not row["settled"]:
                attempt.handed_back = row["partitions"] == "[]"
                self.retries.backed_off(attempt, status, json.loads(row["body"]))

    def _batches(self) -> None:
        rows = self.ledger.batches()
        done = {a.batch_id for a in self.seen.attempts.values() if a.status == "DONE"}
        for batch_id, (status, attempts) in rows.items():
            past = self.seen.batches.get(batch_id)
            if past == (status, attempts):
                continue
            if past is not None and past[0] == "DONE":
                self.fail("I-16", f"batch {batch_id} was DONE and is {status} after {attempts} attempts")
            if status == "DONE":
                self.hold("I-16", batch_id in done, f"batch {batch_id} is DONE without an OUTCOME")
        self.seen.batches = rows

    def _cursors(self) -> None:
        rows = self.ledger.cursors()
        for key, (batch_id, snapshot_id) in rows.items():
            if self.seen.cursors.get(key) == (batch_id, snapshot_id):
                continue
            status, _ = self.seen.batches[batch_id]
            self.hold("I-16", status == "DONE", f"the cursor is at {batch_id}, which is {status}")
            done = [a for a in self.seen.attempts.values() if (a.batch_id, a.status) == (batch_id, "DONE")]
            self.hold("I-16", done, f"the cursor is at {batch_id}, which has no OUTCOME")
            tokens = {a.token for a in done}
            snapshots = [o.snapshot_id for o in self.world.lake.landed() if o.token in tokens]
            right = snapshot_id is None or snapshot_id in snapshots or key[1] not in _LEAVING_A_TOKEN
            self.hold("I-16", right, f"the cursor is at snapshot {snapshot_id}, not one of {snapshots}")
        self.seen.cursors = rows

    def _records(self) -> None:
        rows = self.ledger.rows(
            f"SELECT * FROM icm_record WHERE ordinal > {self.seen.last['record']} ORDER BY ordinal"
        )
        for row in rows:
            self.seen.last["record"] = row["ordinal"]
            record = loads(Record, row["body"])
            for batch in record.outcome.batches:
                if batch.outcome in SUCCESSFUL:
                    self._in_table("I-19", record.run_id, batch.batch_id)

    def _in_table(self, invariant: str, run_id: str, batch_id: str) -> None:
        of_batch = {a.operation for a in self.seen.attempts.values() if a.batch_id == batch_id}
        if of_batch and of_batch.isdisjoint(_LEAVING_A_TOKEN):
            return
        landed = any(o.batch_id == batch_id for o in self.world.lake.landed())
        self.hold(invariant, landed, f"{run_id} tells of {batch_id}, which is not in the table")

    def _by_holder(self, uuid: str, fence: int | None, what: str) -> None:
        """Only who holds the lease writes, under its fence."""
        process, (owner, held, expires_ms) = self.caller, self.seen.leases[uuid]
        assert process is not None
        now_ms, run_id = self.world.lake.now_ms, process.request.run_id
        self.hold("I-16", owner == run_id, f"{what} by {run_id}, the lease is {owner}'s")
        self.hold("I-16", expires_ms > now_ms, f"{what} by {run_id}, whose lease has expired")
        self.hold("I-16", fence in (None, held), f"{what} under fence {fence}, the lease has {held}")

    def _retained(self, uuid: str) -> set[str]:
        """Tokens of the snapshots that the table still has."""
        table = self.world.lake.every[uuid]
        kept = {s.snapshot_id for s in table.state.snapshots}
        return {o.token for o in table.landed if o.snapshot_id in kept}
