"""The command `run`."""

from __future__ import annotations

import os
import socket
import traceback
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import click

from iceberg_maint.cli.command import Terminated, command, overrides_option, terminated_by_signals
from iceberg_maint.cli.context import Session, most_severe_exit, operator
from iceberg_maint.core.decisions.table_decision import TableVerdict, verdict_on
from iceberg_maint.core.model.ids import CYCLE, DATA_OPERATIONS, PartitionKey, TableId, command_line
from iceberg_maint.core.model.reasons import SENTENCES, Reason
from iceberg_maint.core.outcomes.outcome import BatchOutcome, OperationOutcome, OutcomeStatus
from iceberg_maint.errors import (
    CODES,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_REFUSED,
    EXIT_UNKNOWN,
    IcebergMaintError,
    UnknownTableError,
)
from iceberg_maint.loop.fleet.budget import in_budget_order, store_waits
from iceberg_maint.loop.guards import TableTimeout
from iceberg_maint.loop.maintain import (
    BatchEnded,
    BatchStarted,
    Event,
    OperationEnded,
    PlanReady,
    Progress,
    Request,
    maintain,
)
from iceberg_maint.loop.plan import PreparedTable

if TYPE_CHECKING:
    from iceberg_maint.cli.pages.run_page import RunProgress
    from iceberg_maint.loop.context import Context


@dataclass(slots=True)
class _Result:
    """The result of one table. `named`: the caller named the table; otherwise a catalog listed it."""

    table: TableId
    named: bool = True
    outcomes: list[OperationOutcome] = field(default_factory=list)
    error: dict[str, str | None] | None = None
    codes: set[int] = field(default_factory=lambda: {EXIT_DONE})
    planned: PlanReady | None = None
    ended: list[BatchOutcome] = field(default_factory=list)
    verdict: TableVerdict | None = None

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
        return [o for o in self.outcomes if self.error is None or o.batches]

    def document(self) -> dict[str, Any]:
        from iceberg_maint.report.json_documents import outcome_document

        operations = [outcome_document(o) for o in self.outcomes]
        shown: dict[str, Any] = {"table": str(self.table), "operations": operations}
        return shown if self.error is None else {**shown, "error": self.error}


@click.command()
@click.argument("names", metavar="[TABLE]...", nargs=-1)
@click.option(
    "--partition", "partitions", multiple=True, help="Only this partition of TABLE; may be repeated."
)
@click.option(
    "--operation",
    "operations",
    multiple=True,
    type=click.Choice([o.value for o in CYCLE]),
    metavar="OPERATION",
    help=f"Only this operation; may be repeated: {', '.join(o.value for o in CYCLE)}.",
)
@click.option("--max-batches", type=click.IntRange(min=1), help="Stop after this many batches.")
@click.option("--force", is_flag=True, help="Also rewrite healthy partitions of TABLE, and ignore back-off.")
@overrides_option
@command
def run(
    session: Session,
    names: tuple[str, ...],
    partitions: tuple[str, ...],
    operations: tuple[str, ...],
    max_batches: int | None,
    force: bool,
    overrides: dict[str, str],
) -> int:
    """Maintain tables: resume unfinished batches, then do the due work, worst first.

    Without --partition, run all operations: data, manifests, snapshots and orphan files. With it, only
    the operations on data of these partitions.
    """
    from iceberg_maint.cli.pages.run_page import RunProgress, draw_run
    from iceberg_maint.wiring.adapters import end_process

    chosen_operations = tuple(o for o in CYCLE if o.value in operations) or (
        DATA_OPERATIONS if partitions else CYCLE
    )
    if partitions and not set(chosen_operations) <= set(DATA_OPERATIONS):
        raise click.UsageError("--partition needs operations on data.")
    if partitions and len(names) != 1:
        raise click.UsageError("--partition needs exactly one TABLE.")
    if force and not names:
        raise click.UsageError("--force needs a TABLE.")
    context = session.context(overrides).ended_by(end_process)
    codes = {EXIT_DONE}
    chosen = [context.catalogs.find(name) for name in names]
    if not names:
        chosen = in_budget_order(context, list(session.tables(context, codes)))
    run_id = f"cli-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    results: list[_Result] = []
    remaining = max_batches

    try:
        with (
            terminated_by_signals(context.engine.cancel, end_process),
            RunProgress(session.logs()) as progress,
        ):
            request = Request(
                run_id,
                frozenset(map(PartitionKey, partitions)) or None,
                remaining,
                force,
                chosen_operations,
                f"command line, {operator()}",
            )
            prepared = PreparedTable(chosen[0], request, context) if len(chosen) > 1 else None
            for table, following in zip_longest(chosen, chosen[1:]):
                result = _Result(table, named=bool(names))
                results.append(result)
                own = context if prepared is None else prepared.context()
                prepared = None if following is None else PreparedTable(following, request, context)
                _maintain_one(own, result, replace(request, max_batches=remaining), progress, session)
                if remaining is not None:
                    remaining = max(0, remaining - sum(len(o.batches) for o in result.outcomes))
            budget = context.policies.fleet_budget
            reasons = {o.reason for r in results for o in r.outcomes}
            if budget is not None and Reason.FLEET_BUDGET in reasons:
                # The cycle before the run did not know the tables that the run was first to measure. Without this one, the
                # next cycle stores their waits.
                with suppress(IcebergMaintError):
                    store_waits(context, budget)
    except (Terminated, KeyboardInterrupt) as why:
        # After its start Spark handles SIGINT and raises KeyboardInterrupt.
        signal = str(why) or "SIGINT"
        session.say(f"terminated by {signal}; finished batches stay, and the next run continues")
        if results:
            results[-1].terminate(signal)
    _say_faults(results, session)

    def draw(console: Any) -> None:
        if not results:
            console.print("no tables")
        draw_run(console, [r.shown() for r in results])

    session.emit({"run_id": run_id, "tables": [r.document() for r in results]}, draw)
    return most_severe_exit(codes | {code for r in results for code in r.codes})


def _maintain_one(
    context: Context,
    result: _Result,
    request: Request,
    progress: RunProgress,
    session: Session,
) -> None:
    table = result.table
    progress.begin(str(table), None, "measuring")

    def observe(event: Event) -> None:
        result.observe(event)
        _show(progress, event)

    try:
        maintain(table, request, context, observe)
        _add_exit_codes(context, result, session)
    except TableTimeout as timeout:
        session.say(str(timeout))
        result.interrupt(timeout.error.code, timeout.error.message, timeout.error.fix)
    except IcebergMaintError as error:
        session.say_of(table, error)
        result.error = {"code": error.code, "message": error.message, "fix": error.fix}
        # Dropped after the catalog listed it. The caller did not name it, so this is no error.
        dropped = isinstance(error, UnknownTableError) and not result.named
        result.codes.add(EXIT_DONE if dropped else error.exit_code)
    except Exception as error:  # noqa: BLE001 - the failure of one table must not stop the others
        session.say(traceback.format_exc())
        line = f"{type(error).__name__}: {' '.join(str(error).split())}"
        session.say(f"{table}: unexpected {line}")
        result.error = {"code": None, "message": line, "fix": ""}
        result.codes.add(EXIT_FAILED)


def _add_exit_codes(context: Context, result: _Result, session: Session) -> None:
    from iceberg_maint.report.deferrals import refusal
    from iceberg_maint.report.verdicts import EXIT_CODES

    measured = context.ledger.health.get(result.table)
    unknown = 0
    if measured is not None:
        histories = context.ledger.health.histories({measured.table_uuid: str(result.table)}, CYCLE)
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
    reported: set[Reason] = set()
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
                session.say_of(result.table, lost or refused)
            reported.add(outcome.reason)
            result.codes.add(EXIT_REFUSED)


def _say_faults(results: Sequence[_Result], session: Session) -> None:
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


def _show(progress: RunProgress, event: Event) -> None:
    from iceberg_maint.report.formatting import counted, progress_line

    match event:
        case PlanReady():
            progress.total(len(event.resumed) + len(event.plan.batches))
        case BatchStarted():
            files = f": {counted(event.batch.input_files, 'file')}" if event.batch.input_files else ""
            progress.note(f"{event.batch.operation}{files}")
        case BatchEnded():
            progress.step()
        case Progress():
            progress.note(progress_line(event.step, event.batch, event.seconds, event.work))
        case OperationEnded():
            pass
