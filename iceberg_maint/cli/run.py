"""The main job: run."""

from __future__ import annotations

import os
import socket
import traceback
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from iceberg_maint.cli.context import Session, command, most_severe_exit, overrides_option
from iceberg_maint.cli.signals import Terminated, terminated_by_signals
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import CYCLE, DATA_OPERATIONS, TableId
from iceberg_maint.core.model.reasons import Reason
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
from iceberg_maint.runner.maintain import (
    BatchEnded,
    BatchStarted,
    Event,
    OperationEnded,
    PlanReady,
    Request,
    maintain,
)

if TYPE_CHECKING:
    from iceberg_maint.report.progress import RunProgress
    from iceberg_maint.wiring import App

# What a table refuses for these reasons, by its public code.
_REFUSALS = {
    Reason.UNSUPPORTED_KEY: "ICM-119",
    Reason.MEMORY: "ICM-124",
    Reason.FORMAT_VERSION: "ICM-108",
    Reason.DROPPED_SOURCE: "ICM-131",
    Reason.LEASE_HELD: "ICM-109",
    Reason.FOREIGN_MAINTAINER: "ICM-109",
    Reason.APPROVAL_REQUIRED: "ICM-122",
    Reason.GC_DISABLED: "ICM-110",
    Reason.CLOCKS_DISAGREE: "ICM-115",
}


@dataclass(slots=True)
class _Result:
    """What became of one table; `named` by the caller, else found in the catalog's list."""

    table: TableId
    named: bool = True
    outcomes: list[OperationOutcome] = field(default_factory=list)
    error: dict[str, str | None] | None = None
    codes: set[int] = field(default_factory=lambda: {EXIT_DONE})
    planned: PlanReady | None = None
    ended: list[BatchOutcome] = field(default_factory=list)

    def see(self, event: Event) -> None:
        """Keeps what is needed to tell of a run that is cut off."""
        match event:
            case PlanReady():
                if self.planned is None:
                    self.planned = event
            case BatchEnded():
                self.ended.append(event.outcome)
            case OperationEnded():
                self.outcomes.append(event.outcome)
                self.planned, self.ended = None, []
            case BatchStarted():
                pass

    def cut_off(self, signal: str) -> None:
        """Terminated by a signal: what was done until then is told all the same."""
        self.codes.add(EXIT_FAILED)
        self.error = {"code": None, "message": f"terminated by {signal}", "fix": "run again."}
        if self.planned is None:
            return
        before = self.planned.plan.snapshot_id
        self.outcomes.append(
            OperationOutcome(
                table=str(self.table),
                operation=self.planned.plan.operation,
                outcome=OutcomeStatus.FAILED,
                reason=Reason.TERMINATED,
                snapshot_before=before,
                snapshot_after=next(
                    (b.snapshot_after for b in reversed(self.ended) if b.snapshot_after), before
                ),
                batches=tuple(self.ended),
                partitions=tuple((p, b.outcome, b.reason) for b in self.ended for p in b.partitions),
            )
        )

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
    help="Only this operation; may be repeated.",
)
@click.option("--max-batches", type=click.IntRange(min=1), help="Stop after this many batches.")
@click.option("--force", is_flag=True, help="Rewrite healthy partitions of TABLE too, and skip back-off.")
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
    """Maintain tables: resume what was left, then do what is due, worst first.

    With partitions named, their data only; else the whole cycle, manifests, snapshots and orphan
    files included.
    """
    from iceberg_maint.report.console import draw_outcome
    from iceberg_maint.report.progress import RunProgress

    wanted = tuple(o for o in CYCLE if o.value in operations) or (DATA_OPERATIONS if partitions else CYCLE)
    if partitions and not set(wanted) <= set(DATA_OPERATIONS):
        raise click.UsageError("--partition goes with operations on data only.")
    if partitions and len(names) != 1:
        raise click.UsageError("--partition needs exactly one TABLE.")
    if force and not names:
        raise click.UsageError("--force needs a TABLE.")
    app = session.app()
    chosen = [app.find(name) for name in names] or list(app.tables())
    if not names:
        session.warn_of_unlisted(chosen)
    run_id = f"cli-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    results: list[_Result] = []
    left = max_batches

    def cancel() -> None:
        if app.running_engine is not None:
            app.running_engine.cancel()

    try:
        with terminated_by_signals(cancel), RunProgress(session.logs()) as progress:
            for table in chosen:
                result = _Result(table, named=bool(names))
                results.append(result)
                request = Request(run_id, frozenset(partitions) or None, left, force, wanted)
                _maintain_one(app, result, request, overrides, progress, session)
                if left is not None:
                    left = max(0, left - sum(len(o.batches) for o in result.outcomes))
    except (Terminated, KeyboardInterrupt) as why:
        # Spark takes SIGINT over once it has started, and raises KeyboardInterrupt.
        signal = str(why) or "SIGINT"
        session.say(f"terminated by {signal}; finished batches stay, the next run goes on from there")
        results[-1].cut_off(signal)

    def draw(console: Any) -> None:
        for result in results:
            for outcome in _telling(result.outcomes):
                draw_outcome(console, outcome)

    session.emit({"run_id": run_id, "tables": [r.document() for r in results]}, draw)
    return most_severe_exit({code for r in results for code in r.codes})


def _maintain_one(
    app: App,
    result: _Result,
    request: Request,
    overrides: dict[str, str],
    progress: RunProgress,
    session: Session,
) -> None:
    table = result.table
    progress.begin(str(table), None, "looking")

    def observe(event: Event) -> None:
        result.see(event)
        _show(progress, event)

    try:
        maintain(table, app.policy_of(overrides), request, app.tools(table), observe)
        _judge_exit(app, result, session)
    except IcebergMaintError as error:
        session.say(f"{table}: {error}")
        result.error = {"code": error.code, "message": error.message, "fix": error.fix}
        # Dropped since the catalog listed it: nobody asked for it by name, nothing is wrong.
        dropped = isinstance(error, UnknownTableError) and not result.named
        result.codes.add(EXIT_DONE if dropped else error.exit_code)
    except Exception as error:  # noqa: BLE001 - one table's failure must not keep the others ill
        session.say(traceback.format_exc())
        line = f"{type(error).__name__}: {' '.join(str(error).split())}"
        session.say(f"{table}: unexpected {line}")
        result.error = {"code": None, "message": line, "fix": ""}
        result.codes.add(EXIT_FAILED)


def _telling(outcomes: list[OperationOutcome]) -> list[OperationOutcome]:
    """What a person wants to read: operations that found something to do, else the last one."""
    quiet = (Reason.HEALTHY, Reason.EMPTY, Reason.OTHER_OPERATION)
    return [o for o in outcomes if o.batches or o.reason not in quiet] or outcomes[-1:]


def _judge_exit(app: App, result: _Result, session: Session) -> None:
    measured = app.ledger.health(result.table)
    waiting = 0
    if measured is not None:
        waiting = sum(
            app.ledger.history(measured.table_uuid, str(result.table), o).unknown_commits for o in CYCLE
        )
    if waiting or any(o.outcome is OutcomeStatus.UNKNOWN for o in result.outcomes):
        session.say(
            f"{result.table}: ICM-121 {CODES['ICM-121']}; no file of it is deleted. "
            f"Fix: iceberg-maint reconcile {result.table}."
        )
        result.codes.add(EXIT_UNKNOWN)
    said: set[Reason] = set()
    for outcome in result.outcomes:
        if outcome.outcome is OutcomeStatus.FAILED:
            result.codes.add(EXIT_FAILED)
        refusal = _REFUSALS.get(outcome.reason)
        # What the policy leaves to another maintainer is no refusal, but a lease that is held is one.
        left = outcome.outcome is OutcomeStatus.NO_OP and outcome.reason is not Reason.FOREIGN_MAINTAINER
        if refusal is not None and (left or outcome.outcome is OutcomeStatus.UNSUPPORTED):
            if outcome.reason not in said:
                words = _refused(outcome.reason, measured) or CODES[refusal]
                session.say(f"{result.table}: {refusal} {words}.")
            said.add(outcome.reason)
            result.codes.add(EXIT_REFUSED)


def _refused(reason: Reason, measured: Measured | None) -> str | None:
    """What is refused in words, where more can be told than the code's."""
    if reason is Reason.DROPPED_SOURCE and measured is not None:
        specs = ", ".join(map(str, measured.specs_losing_values))
        return (
            f"the column by which partition spec {specs} partitions live files was dropped, and Iceberg loses "
            "their partitions in any commit that copies their manifests: deleted rows come back. Fix: set "
            "commit.manifest-merge.enabled=false on the table at once, for other writers' commits, and write "
            "the table anew (INSERT OVERWRITE of all of it, or a new table)"
        )
    if reason is not Reason.FOREIGN_MAINTAINER or measured is None or not measured.foreign:
        return None
    newest = measured.foreign[0]
    return (
        f"{newest.maintainer} rewrote files of the table in snapshot {newest.snapshot_id}; two maintainers "
        f"undo each other's work. Fix: stop it, or set foreign_maintainers.mode to coexist or ignore; "
        f"see iceberg-maint why {measured.table}"
    )


def _show(progress: RunProgress, event: Event) -> None:
    match event:
        case PlanReady():
            progress.total(len(event.resumed) + len(event.plan.batches))
        case BatchStarted():
            progress.note(f"{event.batch.input_files} files")
        case BatchEnded():
            progress.step()
        case OperationEnded():
            pass
