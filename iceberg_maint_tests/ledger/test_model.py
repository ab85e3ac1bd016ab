"""The ledger against a model of plain dictionaries: any calls, in any order, by any lease holder."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.outcomes.outcome import CommitStatus
from iceberg_maint.core.outcomes.record import Settlement
from iceberg_maint.errors import FenceLostError
from iceberg_maint.ledger.batches import OutOfOrderError
from iceberg_maint.ports.stored import BatchStatus, Lease
from iceberg_maint_tests.support.examples import examples
from iceberg_maint_tests.support.fakes.ledger import memory_ledger
from iceberg_maint_tests.support.ledger.values import (
    NAME,
    PROOF,
    REWRITE,
    UUID,
    make_batch,
    outcome_of,
    plan_of,
    written,
)

pytestmark = pytest.mark.slow

PARTITIONS = ("a", "b", "c")
OWNERS = ("run-1", "run-2")
OPEN = ("PLANNED", "STARTED", "UNKNOWN")
REPORTED = tuple(s for s in BatchStatus if s is not BatchStatus.STARTED)
ALLOWED = {
    "COMMITTED": ("DONE",),
    "REJECTED": ("PLANNED", "FAILED", "SUPERSEDED"),
    "UNKNOWN": ("UNKNOWN", "PLANNED"),
}
SETTLEMENTS = {s: Settlement(s, 5 if s == "COMMITTED" else None, s.lower()) for s in CommitStatus}
indices = st.integers(0, 7)


@dataclass
class ModelBatch:
    partition: str
    status: str
    ordinal: int


@dataclass
class ModelAttempt:
    batch_id: str
    fence: int
    status: str = "STARTED"
    tries: int = 0


@dataclass
class Model:
    fence: int = 0
    holder: tuple[str, int] | None = None
    newest: tuple[str, int] | None = None  # The newest lease that was not released, in force or expired.
    batches: dict[str, ModelBatch] = field(default_factory=dict)
    attempts: dict[str, ModelAttempt] = field(default_factory=dict)
    cursor: str | None = None
    crashes: dict[str, int] = field(default_factory=dict)


class Ledgers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ledger = memory_ledger()
        self.model = Model()
        self.leases: list[Lease] = []
        self.ordinal = 0

    def teardown(self) -> None:
        self.ledger.close()

    # leases ------------------------------------------------------------------------------------
    @rule(owner=st.sampled_from(OWNERS), min_fence=st.integers(0, 3))
    def acquire(self, owner: str, min_fence: int) -> None:
        lease = self.ledger.leases.acquire(UUID, NAME, owner, 600, min_fence)
        holder = self.model.holder
        if holder is not None and holder[0] != owner:
            assert lease is None
            return
        crashed = self.model.newest[0] if self.model.newest and self.model.newest[0] != owner else None
        self.model.fence = max(self.model.fence, min_fence) + 1
        self.model.holder = self.model.newest = (owner, self.model.fence)
        beat_ms = lease.crashed_beat_ms if lease is not None and crashed else 0
        assert lease == Lease(UUID, NAME, owner, self.model.fence, 600, crashed, beat_ms)
        self.leases.append(lease)

    @rule()
    def time_passes(self) -> None:
        with self.ledger.work._database.write(UUID) as conn:
            conn.exec_driver_sql("UPDATE icm_lease SET expires_ms = expires_ms - 1000000000")
        self.model.holder = None

    @precondition(lambda self: self.leases)
    @rule(pick=indices)
    def release(self, pick: int) -> None:
        lease = self._lease(pick)
        self.ledger.leases.release(lease)
        if self._held(lease):
            self.model.holder = None
        if self.model.newest == (lease.owner, lease.fence):
            self.model.newest = None

    @precondition(lambda self: self.leases)
    @rule(pick=indices)
    def heartbeat(self, pick: int) -> None:
        lease = self._lease(pick)
        assert self.ledger.leases.heartbeat(lease) is self._held(lease)

    # batches -----------------------------------------------------------------------------------
    @precondition(lambda self: self.leases)
    @rule(pick=indices, partitions=st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=3, unique=True))
    def save_plan(self, pick: int, partitions: list[str]) -> None:
        lease = self._lease(pick)
        plan = plan_of(*partitions)
        if not self._call(lease, None, lambda: self.ledger.work.save_plan(lease, plan)):
            return
        for planned in plan.batches:
            known = self.model.batches.get(planned.batch_id)
            self.ordinal += 1
            if known is None:
                self.model.batches[planned.batch_id] = ModelBatch(
                    planned.partitions[0], "PLANNED", self.ordinal
                )
            elif known.status in ("FAILED", "SUPERSEDED"):
                known.status, known.ordinal = "PLANNED", self.ordinal

    @precondition(lambda self: self.leases and self.model.batches)
    @rule(pick=indices, which=indices)
    def close(self, pick: int, which: int) -> None:
        lease = self._lease(pick)
        batch_id, batch = self._batch(which)
        wrong = batch.status in ("STARTED", "DONE", "FAILED")
        if self._call(lease, wrong, lambda: self.ledger.work.close_batch(lease, batch_id)):
            batch.status = "SUPERSEDED"

    # attempts ----------------------------------------------------------------------------------
    @precondition(lambda self: self.leases and self.model.batches)
    @rule(pick=indices, which=indices)
    def start(self, pick: int, which: int) -> None:
        lease = self._lease(pick)
        batch_id, batch = self._batch(which)
        before = self.model.crashes.get(batch.partition, 0)
        ahead = {batch.partition: PartitionHistory(crashes=before + 1)}
        earlier = [
            a for a in self.model.attempts.values() if a.batch_id == batch_id and a.fence == lease.fence
        ]
        wrong = batch.status != "PLANNED" or any(a.status == "UNKNOWN" for a in earlier)
        started = []
        call = lambda: started.append(self.ledger.work.start_attempt(lease, batch_id, "run", ahead))  # noqa: E731
        if self._call(lease, wrong, call):
            self.model.attempts[started[0].attempt_id] = ModelAttempt(batch_id, lease.fence)
            self.model.crashes[batch.partition] = before + 1
            batch.status = "STARTED"

    @precondition(lambda self: self.leases and self.model.attempts)
    @rule(pick=indices, which=indices)
    def intend(self, pick: int, which: int) -> None:
        lease = self._lease(pick)
        attempt_id, attempt = self._attempt(which)
        files = written(make_batch(self.model.batches[attempt.batch_id].partition))
        call = lambda: self.ledger.work.record_intent(lease, attempt_id, files, PROOF)  # noqa: E731
        if self._call(lease, attempt.status != "STARTED", call, attempt):
            attempt.status = "INTENT"

    @precondition(lambda self: self.leases and self.model.attempts)
    @rule(pick=indices, which=indices)
    def try_(self, pick: int, which: int) -> None:
        lease = self._lease(pick)
        attempt_id, attempt = self._attempt(which)
        wrong = attempt.status not in ("INTENT", "ATTEMPT")
        call = lambda: self.ledger.work.record_try(lease, attempt_id, 1, "v1")  # noqa: E731
        if self._call(lease, wrong, call, attempt):
            attempt.status = "ATTEMPT"
            attempt.tries += 1

    @precondition(lambda self: self.leases and self.model.attempts)
    @rule(pick=indices, which=indices, status=st.sampled_from(REPORTED))
    def finish(self, pick: int, which: int, status: BatchStatus) -> None:
        lease = self._lease(pick)
        attempt_id, attempt = self._attempt(which)
        batch = self.model.batches[attempt.batch_id]
        wrong = attempt.status not in ("STARTED", "INTENT", "ATTEMPT") or (
            status in ("DONE", "UNKNOWN") and not attempt.tries
        )
        outcome = outcome_of(make_batch(batch.partition))
        clean = {batch.partition: PartitionHistory()}
        call = lambda: self.ledger.work.finish_attempt(lease, attempt_id, status, outcome, clean)  # noqa: E731
        if not self._call(lease, wrong, call, attempt):
            return
        attempt.status = "FAILED" if status == "PLANNED" else status.value
        self.model.crashes.pop(batch.partition, None)
        if batch.status == "STARTED":
            batch.status = status.value
            if status == "DONE":
                self.model.cursor = attempt.batch_id

    @precondition(lambda self: self.leases and self.model.attempts)
    @rule(
        pick=indices,
        which=indices,
        commit=st.sampled_from(list(CommitStatus)),
        status=st.sampled_from(REPORTED),
    )
    def settle(self, pick: int, which: int, commit: CommitStatus, status: BatchStatus) -> None:
        lease = self._lease(pick)
        attempt_id, attempt = self._attempt(which)
        batch = self.model.batches[attempt.batch_id]
        wrong = (
            attempt.status not in ("STARTED", "INTENT", "ATTEMPT", "UNKNOWN")
            or status not in ALLOWED[commit]
            or (commit == "UNKNOWN" and not attempt.tries)
        )
        call = lambda: self.ledger.work.settle_attempt(lease, attempt_id, SETTLEMENTS[commit], status)  # noqa: E731
        if not self._call(lease, wrong, call):
            return
        attempt.status = {"COMMITTED": "DONE", "REJECTED": "FAILED", "UNKNOWN": "UNKNOWN"}[commit]
        same = [i for i, a in self.model.attempts.items() if a.batch_id == attempt.batch_id]
        if batch.status in OPEN and (commit == "COMMITTED" or same[-1] == attempt_id):
            batch.status = status.value
            if commit == "COMMITTED":
                self.model.cursor = attempt.batch_id

    # what is seen ------------------------------------------------------------------------------
    @invariant()
    def leases_agree(self) -> None:
        assert [self.ledger.leases.holds(lease) for lease in self.leases[-3:]] == [
            self._held(lease) for lease in self.leases[-3:]
        ]

    @invariant()
    def batches_agree(self) -> None:
        seen = [(b.batch.batch_id, b.status.value) for b in self.ledger.work.open_batches(UUID, REWRITE)]
        model = sorted((b.ordinal, i) for i, b in self.model.batches.items() if b.status in OPEN)
        assert seen == [(i, self.model.batches[i].status) for _, i in model]

    @invariant()
    def attempts_agree(self) -> None:
        seen = [
            (a.attempt_id, a.status, a.fence, len(a.tries), a.files is not None)
            for a in self.ledger.work.open_attempts(UUID)
        ]
        open_ = {
            i: a
            for i, a in self.model.attempts.items()
            if a.status in ("STARTED", "INTENT", "ATTEMPT", "UNKNOWN")
        }
        assert seen == [(i, a.status, a.fence, a.tries, a.status != "STARTED") for i, a in open_.items()]
        tokens = {a.token for a in self.ledger.work.open_attempts(UUID)}
        assert len(tokens) == len(open_)

    @invariant()
    def history_agrees(self) -> None:
        seen = self.ledger.health.history(UUID, NAME, REWRITE)
        assert seen.lease_owner == (self.model.holder[0] if self.model.holder else None)
        assert seen.unknown_commits == sum(a.status == "UNKNOWN" for a in self.model.attempts.values())
        assert {p: h.crashes for p, h in seen.partitions.items()} == self.model.crashes

    @invariant()
    def cursor_agrees(self) -> None:
        cursor = self.ledger.work.cursors(UUID).get(REWRITE)
        assert (cursor.batch_id if cursor else None) == self.model.cursor

    # -------------------------------------------------------------------------------------------
    def _call(self, lease: Lease, wrong: bool | None, call, attempt: ModelAttempt | None = None) -> bool:
        """Whether the call was accepted, having been refused exactly when the model says so."""
        expected: type[Exception] | None = None
        if not self._held(lease) or (attempt is not None and attempt.fence != lease.fence):
            expected = FenceLostError
        elif wrong:
            expected = OutOfOrderError
        if expected is None:
            call()
            return True
        with pytest.raises(expected) as refused:
            call()
        assert refused.type is expected
        return False

    def _held(self, lease: Lease) -> bool:
        return self.model.holder == (lease.owner, lease.fence)

    def _lease(self, pick: int) -> Lease:
        """Mostly the newest lease: zero picks it, and shrinking goes there."""
        return self.leases[-1 - pick % min(3, len(self.leases))] if pick > 4 else self.leases[-1]

    def _batch(self, which: int) -> tuple[str, ModelBatch]:
        return list(self.model.batches.items())[which % len(self.model.batches)]

    def _attempt(self, which: int) -> tuple[str, ModelAttempt]:
        return list(self.model.attempts.items())[-1 - which % len(self.model.attempts)]


Ledgers.TestCase.settings = settings(
    max_examples=examples(40),
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestLedgerAgainstItsModel = Ledgers.TestCase
