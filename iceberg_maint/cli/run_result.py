"""What `run` did on each table: its outcomes, its exit codes, and what is said of it on stderr."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from iceberg_maint.cli.context import Session
from iceberg_maint.core.decisions.table_decision import TableVerdict, verdict_on
from iceberg_maint.core.model.ids import ALL_OPERATIONS, TableId, command_line
from iceberg_maint.core.model.reasons import SENTENCES, Reason
from iceberg_maint.core.outcomes.outcome import BatchOutcome, OperationOutcome, OutcomeStatus
from iceberg_maint.errors import CODES, EXIT_DONE, EXIT_FAILED, EXIT_REFUSED, EXIT_UNKNOWN
from iceberg_maint.loop.request import BatchEnded, BatchStarted, Event, OperationEnded, PlanReady, Progress

if TYPE_CHECKING:
    from iceberg_maint.loop.context import Context


@dataclass(slots=True)
class TableResult:
    """The result of one table, of all its rounds. `outcomes` are those of the last round, `earlier` those with batches of the rounds before.
    `reported` are the reasons that stderr shows already."""

    table: TableId
    outcomes: list[OperationOutcome] = field(default_factory=list)
    earlier: list[OperationOutcome] = field(default_factory=list)
    reported: set[Reason] = field(default_factory=set)
    error: dict[str, str | None] | None = None
    codes: set[int] = field(default_factory=lambda: {EXIT_DONE})
    planned: PlanReady | None = None
    ended: list[BatchOutcome] = field(default_factory=list)
    verdict: TableVerdict | None = None

    def begin_round(self) -> None:
        """Keeps what the last round did."""
        self.earlier += [o for o in self.outcomes if o.batches]
        self.outcomes = []

    def all_outcomes(self) -> list[OperationOutcome]:
        """The outcomes with batches of the rounds before, then those of the last round."""
        return [*self.earlier, *self.outcomes]

    def observe(self, event: Event) -> None:
        """Keeps the facts that a document of a terminated run needs."""
        match event:
            case PlanReady():
                if self.planned is None:
                    self.planned = event
            case BatchEnded():
                self.ended.append(event.outcome)
            case OperationEnded():
                self.outcomes.append(event.outcome)
                self.planned, self.ended = None, []
            case BatchStarted() | Progress():
                pass

    def terminate(self, signal: str) -> None:
        """Adds the work up to the signal that terminated the run."""
        improved = any(b.outcome is OutcomeStatus.IMPROVED for b in self.ended)
        outcome = OutcomeStatus.IMPROVED if improved else OutcomeStatus.DEFERRED
        self.interrupt(None, f"terminated by {signal}", "run again.", outcome)

    def interrupt(
        self, code: str | None, message: str, fix: str, outcome: OutcomeStatus = OutcomeStatus.FAILED
    ) -> None:
        """Adds the work up to an interrupt of the table's maintenance."""
        self.codes.add(EXIT_FAILED)
        self.error = {"code": code, "message": message, "fix": fix}
        if self.planned is None:
            return
        before = self.planned.plan.snapshot_id
        self.outcomes.append(
            OperationOutcome(
                table=str(self.table),
                operation=self.planned.plan.operation,
                outcome=outcome,
                reason=Reason.TERMINATED,
                snapshot_before=before,
                snapshot_after=next(
                    (b.snapshot_after for b in reversed(self.ended) if b.snapshot_after), before
                ),
                batches=tuple(self.ended),
                partitions=tuple((p, b.outcome, b.reason) for b in self.ended for p in b.partitions),
            )
        )

    def shown(self) -> list[OperationOutcome]:
        """The outcomes for people. Of a table whose work an error ended, those without work would say that it is fine."""
        return [o for o in self.all_outcomes() if self.error is None or o.batches]

    def document(self) -> dict[str, Any]:
        """The entry of the table in `run --json`."""
        from iceberg_maint.report.json_documents import outcome_document

        operations = [outcome_document(o) for o in self.all_outcomes()]
        shown: dict[str, Any] = {"table": str(self.table), "operations": operations}
        return shown if self.error is None else {**shown, "error": self.error}


def add_exit_codes(context: Context, result: TableResult, session: Session) -> None:
    """Adds the exit codes of the last round and of faults that last to the result, and says what no fault says."""
    from iceberg_maint.report.deferrals import refusal
    from iceberg_maint.report.verdicts import EXIT_CODES

    measured = context.ledger.health.get(result.table)
    unknown = 0
    if measured is not None:
        histories = context.ledger.health.histories({measured.table_uuid: str(result.table)}, ALL_OPERATIONS)
        unknown = sum(history.unknown_commits for history in histories.values())
        operations = {o.operation for o in result.outcomes}
        faults = next(iter(histories.values())).faults
        verdict = verdict_on(True, (f for f in faults if f.operation in operations))
        result.verdict = verdict
        result.codes.add(EXIT_CODES[verdict.standing])
    if unknown or any(o.outcome is OutcomeStatus.UNKNOWN for o in result.outcomes):
        session.say(
            f"{result.table}: ICM-121 {CODES['ICM-121']}; none of its files is deleted. "
            f"Fix: run `{command_line('reconcile', str(result.table))}`."
        )
        result.codes.add(EXIT_UNKNOWN)
    reported = result.reported
    for outcome in result.outcomes:
        is_quarantined = outcome.reason is Reason.QUARANTINED
        if outcome.outcome is OutcomeStatus.FAILED or is_quarantined:
            result.codes.add(EXIT_FAILED)
        if is_quarantined and outcome.reason not in reported:
            reported.add(outcome.reason)
            session.say(
                f"{result.table}: {SENTENCES[outcome.reason]}. Fix: remove the cause that "
                f"`{command_line('why', str(result.table))}` names, then run `{command_line('release', str(result.table))}`."
            )
        refused = refusal(str(result.table), outcome.reason, measured)
        # Work that the policy leaves to another maintainer is no refusal. A held lease is one.
        undone = outcome.outcome is OutcomeStatus.NO_OP and outcome.reason is not Reason.FOREIGN_MAINTAINER
        undone = undone or outcome.reason is Reason.LEASE_HELD
        if refused is not None and (undone or outcome.outcome is OutcomeStatus.UNSUPPORTED):
            if outcome.reason not in reported:
                # A run that lost its lease says which. Perhaps no other run has it now.
                lost = outcome.message if outcome.reason is Reason.LEASE_HELD else ""
                said = result.verdict
                # A fault with this code is said with its own message.
                if lost or said is None or said.is_quarantined or said.code != refused.code:
                    session.say_of(result.table, lost or refused)
            reported.add(outcome.reason)
            result.codes.add(EXIT_REFUSED)


def say_faults(results: Sequence[TableResult], session: Session) -> None:
    """Says each fault once, with the number of tables that have it. What waits for a person is said before."""
    from iceberg_maint.report.formatting import counted
    from iceberg_maint.report.verdicts import verdict_sentence

    by_message: dict[str, list[tuple[TableId, TableVerdict]]] = {}
    for result in results:
        if result.verdict is not None and result.verdict.faults and not result.verdict.is_quarantined:
            by_message.setdefault(result.verdict.message, []).append((result.table, result.verdict))
    for (table, verdict), *others in by_message.values():
        more = f" and {counted(len(others), 'more table', 'more tables')}" if others else ""
        session.say(f"{table}{more}: {verdict_sentence(verdict)}")
