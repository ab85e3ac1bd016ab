"""Attempts at a batch by an engine elsewhere: chosen by policy, run as statements, found again in the table and attested.

Such commits pass no gate. So a table with a hazard is refused before, the attempt is stored before a statement is sent, and
every commit is proved afterwards. A commit that is not proved stops the table for a person.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from iceberg_maint.core.decisions.statement_hazards import CannotError, hazards
from iceberg_maint.core.decisions.waits import publish_wait, quarantined_history, succeeded
from iceberg_maint.core.model.ids import WHOLE_TABLE, Operation, TableId
from iceberg_maint.core.model.other_writers import is_maintenance, pending_publishes
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import TOKEN_PROPERTY, Snapshot, TableState
from iceberg_maint.core.outcomes.attestation import Attestation
from iceberg_maint.core.outcomes.outcome import UNSUPPORTED_BY, CommitResult, CommitStatus, OutcomeStatus
from iceberg_maint.core.outcomes.verification import Proof, Verification, VerificationStatus
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.core.policy.engines import engines_of
from iceberg_maint.core.policy.housekeeping import OWN_ENGINE, AttestLevel
from iceberg_maint.errors import ConfigurationError, IcebergMaintError, RefusedError
from iceberg_maint.loop.attempts.attempt import (
    AttemptResult,
    environment_failure,
    one_line,
    pin_same,
    removed_deletes_of,
)
from iceberg_maint.loop.attest import Extent, attest_by_policy, attest_snapshot
from iceberg_maint.loop.context import Context
from iceberg_maint.ports.statement_engine import Statement, StatementEngine, StatementFailedError

_STATEMENT = "statement"
"""The level, in an intent, of a proof that stands for a statement. Its detail is the engine's name."""
_STALE = AttemptResult(OutcomeStatus.DEFERRED, Reason.STALE, "another table has this name now")
_HELD = frozenset({VerificationStatus.ATTESTED, VerificationStatus.CONSISTENT})


def statement_of(engine: str) -> Proof:
    """Returns what an intent stores in place of a proof: nothing is proved before a statement."""
    return Proof(_STATEMENT, equal=True, input_records=0, output_records=0, removed_records=0, detail=engine)


def statement_engine(proof: Proof | None, context: Context) -> StatementEngine | None:
    """Returns the engine that the statement of this intent was sent to. None for an intent of this program, and for an
    engine that is no longer configured."""
    is_statement = proof is not None and proof.level == _STATEMENT
    return context.engine.elsewhere.get(proof.detail) if proof is not None and is_statement else None


@dataclass(frozen=True, slots=True)
class Choice:
    """What takes a batch: an engine by its statements, or this program if `engine` and `result` are None. `result` ends the
    batch where no engine can. `passed` says why earlier engines of the list do not take it."""

    name: str = OWN_ENGINE
    engine: StatementEngine | None = None
    statements: tuple[Statement, ...] = ()
    passed: str = ""
    result: AttemptResult | None = None

    @property
    def is_own(self) -> bool:
        """Whether this program takes the batch."""
        return self.engine is None and self.result is None


def choose(batch: Batch, policy: Policy, context: Context) -> Choice:
    """Returns the first engine of the policy's list that can take the batch. It asks no engine elsewhere."""
    names = engines_of(batch.operation, policy)
    if names[:1] == (OWN_ENGINE,):
        return Choice()
    state = pin_same(batch, context)
    if state is None:
        return Choice(result=_STALE)
    passed: list[str] = []
    for name in names:
        why = "; ".join(passed)
        if name == OWN_ENGINE:
            return Choice(passed=why)
        engine = _engine(name, batch.operation, context)
        try:
            _require_safe(batch, state, policy, context)
            return Choice(name, engine, engine.statements(batch, state), why)
        except CannotError as cannot:
            passed.append(f"{UNSUPPORTED_BY}{name}: {cannot}")
    refusal = RefusedError(
        "ICM-186",
        f"{batch.table}: no engine of {batch.operation}.engines takes the batch: {'; '.join(passed)}.",
        f"add {OWN_ENGINE} to the list, or remove the cause.",
    )
    return Choice(result=AttemptResult(OutcomeStatus.UNSUPPORTED, Reason.REFUSED, str(refusal)))


def _engine(name: str, operation: Operation, context: Context) -> StatementEngine:
    engine = context.engine.elsewhere.get(name)
    if engine is None:
        raise ConfigurationError(
            "ICM-100",
            f"{operation}.engines names {name}, which is not configured.",
            f"add engines.{name} to the configuration, or correct the name.",
        )
    return engine


def _require_safe(batch: Batch, state: TableState, policy: Policy, context: Context) -> None:
    """Raises CannotError with the first hazard."""
    for hazard in hazards(batch.operation, state, policy):
        raise CannotError(hazard)
    attested = context.ledger.attestations.get(state.uuid)
    if attested is not None and attested.red:
        raise CannotError(f"snapshot {attested.red[-1].snapshot_id} is RED, and no person has accepted it")
    level, limit = policy.attest.level, policy.attest.max_bytes
    if level is AttestLevel.FILES and 2 * batch.input_bytes > limit:
        raise CannotError(
            f"the proof of its commit may read {2 * batch.input_bytes:,} bytes, above attest.max_bytes"
        )


def run_statements(
    choice: Choice, batch: Batch, policy: Policy, context: Context, before: Callable[[TableState], None]
) -> AttemptResult:
    """Runs the statements, and attests what they committed. `before` stores the attempt of a statement on this state, and
    raises FenceLostError without the lease. Raises what interrupts it; the statement may then still take effect."""
    engine = choice.engine
    assert engine is not None, "the batch is not this program's"
    try:
        version = engine.version(TableId.parse(batch.table).catalog)
        known = pin_same(batch, context)
        if known is None or known.snapshot is None:
            return _STALE
        # A table of the same name in another lake must not get the statement.
        engine.find(known.table, known.snapshot.snapshot_id)
    except Exception as why:  # noqa: BLE001 - nothing was sent
        return _failure(why, batch, context)
    state = pin_same(batch, context)
    if state is None:
        return _STALE
    try:
        _require_safe(batch, state, policy, context)
    except CannotError as why:
        return AttemptResult(OutcomeStatus.DEFERRED, Reason.STALE, f"since the plan: {why}")
    if wait := publish_wait(pending_publishes(state), policy, context.clock.now_ms()):
        return AttemptResult(OutcomeStatus.DEFERRED, Reason.STALE, f"{wait.names} is to be published")
    # The cursor of attestation stands before the first commit.
    attest_by_policy(state, policy.attest, context, files=False)
    done = _Done(f"{choice.name} {version}", engine, batch, policy, context, state)
    for statement in choice.statements:
        before(done.state)
        if (ended := done.run(statement)) is not None:
            return ended
    return done.result()


def _failure(why: Exception, batch: Batch, context: Context) -> AttemptResult:
    failed = environment_failure(why, batch, context)
    text = str(why) if isinstance(why, IcebergMaintError | StatementFailedError) else one_line(why)
    return failed or AttemptResult(OutcomeStatus.FAILED, Reason.ERROR, text)


@dataclass(slots=True)
class _Done:
    """The statements of one batch so far: the state after them, and their commits with the verdicts."""

    engine_name: str
    engine: StatementEngine
    batch: Batch
    policy: Policy
    context: Context
    state: TableState
    base: TableState | None = None
    commits: tuple[Snapshot, ...] = ()
    verdicts: tuple[Verification, ...] = ()
    attest_seconds: float = 0.0

    def run(self, statement: Statement) -> AttemptResult | None:
        """Runs one statement. Returns the result of the batch if that ends it."""
        base, self.base = self.state, self.base or self.state
        ids: list[str] = []
        failure: Exception | None = None
        try:
            self.engine.run(statement, ids.append)
        except Exception as why:  # noqa: BLE001 - the table shows its result
            failure = why
        state = pin_same(self.batch, self.context)
        if state is None:
            return _STALE
        self.state = state
        commits = commits_since(state, base.snapshot, self.engine, ids[-1] if ids else "")
        self.commits += commits
        if commits:
            note_ordered(state, commits, self.context)
            began = self.context.clock.monotonic_seconds()
            self.verdicts += _attested(state, commits, self.policy, self.context)
            self.attest_seconds += self.context.clock.monotonic_seconds() - began
        if any(v.status not in _HELD for v in self.verdicts):
            return self._not_attested()
        if failure is None or commits:
            return None
        if not isinstance(failure, StatementFailedError):
            return AttemptResult(
                OutcomeStatus.UNKNOWN, Reason.UNKNOWN_COMMIT, f"{self.engine_name}: {one_line(failure)}"
            )
        if failure.is_conflict:
            return AttemptResult(OutcomeStatus.DEFERRED, Reason.CONFLICT, f"{self.engine_name}: {failure}")
        return AttemptResult(OutcomeStatus.FAILED, Reason.ERROR, f"{self.engine_name}: {failure}")

    def result(self) -> AttemptResult:
        """Returns the result from the table itself."""
        if not self.commits:
            return AttemptResult(
                OutcomeStatus.UNSUPPORTED,
                Reason.NO_EFFECT,
                f"{self.engine_name} made no commit",
                engine=self.engine_name,
            )
        forced = Reason.FORCED in self.batch.reasons
        better = self._is_better()
        status = OutcomeStatus.IMPROVED if better else OutcomeStatus.COMMITTED
        return self._committed(status, self.batch.reasons[0] if better or forced else Reason.NO_EFFECT)

    def _is_better(self) -> bool:
        assert self.base is not None, "a statement ran"
        if self.batch.operation is Operation.REWRITE_MANIFESTS:
            return len(self.state.manifests) < len(self.base.manifests)
        removed = self._count("deleted-data-files")
        return self._count("added-data-files") < removed or any(map(removed_deletes_of, self.commits))

    def _count(self, key: str) -> int:
        return sum(int(s.summary.get(key, "0")) for s in self.commits)

    def _committed(self, status: OutcomeStatus, reason: Reason) -> AttemptResult:
        first, last = self.commits[0], self.commits[-1]
        attested = sum(v.status is VerificationStatus.ATTESTED for v in self.verdicts)
        return AttemptResult(
            status,
            reason,
            "; ".join(
                f"{self.engine_name}, no gate: snapshot {v.snapshot_id} {v.status}: {v.detail}"
                for v in self.verdicts
            ),
            proof=_proof(self.verdicts),
            commit=CommitResult(
                CommitStatus.COMMITTED, None, last.snapshot_id, first.parent_id, tries=len(self.commits)
            ),
            snapshot=last,
            counts={"attested_commits": attested, "attest_ms": round(self.attest_seconds * 1000)},
            engine=self.engine_name,
            added=(self._count("added-data-files"), self._count("added-files-size")),
        )

    def _not_attested(self) -> AttemptResult:
        """The result that stops the table. The snapshots that a roll-back needs stay: nothing expires until a person releases
        it."""
        result = self._committed(OutcomeStatus.FAILED, Reason.NOT_ATTESTED)
        held = {WHOLE_TABLE: quarantined_history(succeeded(), self.context.process.masked(result.message))}
        health = self.context.ledger.health
        health.set_partition_history(self.state.uuid, Operation.EXPIRE_SNAPSHOTS, held)
        return result


def commits_since(
    state: TableState, base: Snapshot | None, engine: StatementEngine, statement_id: str
) -> tuple[Snapshot, ...]:
    """Returns the commits on main after `base` that can be of the statement, oldest first: they claim to change no row, are
    not of this program, and have the mark of the engine. None if main no longer has `base`."""
    chain = state.ancestors()
    place = next(
        (n for n, s in enumerate(chain) if base is not None and s.snapshot_id == base.snapshot_id), 0
    )
    return tuple(
        s
        for s in reversed(chain[:place])
        if is_maintenance(s) and TOKEN_PROPERTY not in s.summary and engine.made(s, statement_id)
    )


def note_ordered(state: TableState, commits: Iterable[Snapshot], context: Context) -> None:
    """Stores that these commits are of statements of this program: they are no foreign maintenance."""
    stored = context.ledger.attestations.get(state.uuid) or Attestation(0, 0)
    context.ledger.attestations.put(state.uuid, stored.with_ordered(s.snapshot_id for s in commits))


def _attested(
    state: TableState, commits: Sequence[Snapshot], policy: Policy, context: Context
) -> tuple[Verification, ...]:
    judged = {v.snapshot_id: v for v in attest_by_policy(state, policy.attest, context, files=True).verdicts}
    files = policy.attest.level is AttestLevel.FILES
    verdicts = []
    for commit in commits:
        verdict = judged.get(commit.snapshot_id)
        if verdict is None:
            # Earlier commits used up what one attestation reads.
            extent = Extent(files, policy.attest.max_bytes)
            verdict = attest_snapshot(state, commit.snapshot_id, context, extent).verdicts[0]
        verdicts.append(verdict)
    return tuple(verdicts)


def _proof(verdicts: Sequence[Verification]) -> Proof | None:
    """The proof for the record: of rows if each commit was proved from its files, of metadata if each was proved at all."""
    if any(v.status is not VerificationStatus.ATTESTED for v in verdicts):
        return None
    sides = [(v.before.fingerprint, v.after.fingerprint) for v in verdicts if v.before and v.after]
    if len(sides) < len(verdicts):
        return Proof("metadata", equal=True, input_records=0, output_records=0, removed_records=0)
    rows_in, rows_out = (sum(f[n].rows for f in sides) for n in (0, 1))
    text = sides[-1][1].text() if len(sides) == 1 else None
    return Proof(
        "attested",
        equal=True,
        input_records=rows_in,
        output_records=rows_out,
        removed_records=0,
        fingerprint=text,
    )
