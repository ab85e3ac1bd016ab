"""The loop of `run` over its tables: in rounds, within the limits of the command, until a signal ends it."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from iceberg_maint.cli.command import Terminated, terminated_by_signals
from iceberg_maint.cli.context import Session
from iceberg_maint.cli.run_result import TableResult, add_exit_codes, say_faults
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.errors import EXIT_FAILED, IcebergMaintError
from iceberg_maint.loop.fleet.budget import store_waits
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
from iceberg_maint.loop.plan_batches import PreparedTable
from iceberg_maint.report.formatting import counted, progress_line

if TYPE_CHECKING:
    from iceberg_maint.cli.pages.run_page import RunProgress
    from iceberg_maint.loop.context import Context


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run starts at most: `max_batches` batches, and no batch and no table after `max_seconds`; None is no limit. With
    `until_idle` a table that did work is maintained again until it has no more to start."""

    max_batches: int | None = None
    max_seconds: int | None = None
    until_idle: bool = False


def maintain_tables(
    tables: Sequence[TableId], request: Request, limits: Limits, context: Context, session: Session
) -> list[TableResult]:
    """Maintains the tables in this order. Returns the results of those that were started before a limit or a signal."""
    from iceberg_maint.cli.pages.run_page import RunProgress

    results: dict[TableId, TableResult] = {}
    try:
        with (
            terminated_by_signals(context.engine.cancel, context.process.end),
            RunProgress(session.logs()) as progress,
        ):
            run = _Run(request, limits, context, session, progress, context.clock.monotonic_seconds())
            worked = run.maintain_round(tables, results)
            while limits.until_idle and worked:
                worked = run.maintain_round(worked, results)
            _store_waits(results.values(), context)
    except (Terminated, KeyboardInterrupt) as why:
        # After its start Spark handles SIGINT and raises KeyboardInterrupt.
        signal = str(why) or "SIGINT"
        session.say(f"terminated by {signal}; finished batches stay, and the next run continues")
        if not results and tables:
            # The signal arrived before the first table was started.
            results[tables[0]] = TableResult(tables[0])
        for result in list(results.values())[-1:]:
            result.terminate(signal)
    say_faults(list(results.values()), session)
    return [results[t] for t in tables if t in results]


@dataclass(frozen=True, slots=True)
class _Run:
    """What the tables of one run share."""

    request: Request
    limits: Limits
    context: Context
    session: Session
    progress: RunProgress
    started_seconds: float

    def maintain_round(self, tables: Sequence[TableId], results: dict[TableId, TableResult]) -> list[TableId]:
        """Maintains each table once. Adds its result when it is started, as the last one. Returns the tables that changed."""
        prepared = self._prepare(tables[0]) if len(tables) > 1 else None
        worked = []
        for index, (table, following) in enumerate(zip_longest(tables, tables[1:])):
            request = self._next_request(results.values())
            if request is None:
                waiting = counted(len(tables) - index, "table waits", "tables wait")
                self.session.say(f"stopped after {self.limits.max_seconds} s; {waiting} for the next run")
                return []
            result = results.pop(table, None) or TableResult(table)
            result.begin_round()
            results[table] = result
            own = self.context if prepared is None else prepared.context()
            prepared = None if following is None else self._prepare(following)
            self._maintain(own, result, request)
            if any(o.outcome is OutcomeStatus.IMPROVED for o in result.outcomes):
                worked.append(table)
        return worked

    def _prepare(self, table: TableId) -> PreparedTable:
        return PreparedTable(table, self.request, self.context)

    def _next_request(self, results: Iterable[TableResult]) -> Request | None:
        """The request with the remaining batches and seconds; None if the time is over."""
        batches, seconds = self.limits.max_batches, self.limits.max_seconds
        if batches is not None:
            batches = max(0, batches - sum(len(o.batches) for r in results for o in r.all_outcomes()))
        if seconds is None:
            return replace(self.request, max_batches=batches)
        remaining = seconds - (self.context.clock.monotonic_seconds() - self.started_seconds)
        return replace(self.request, max_batches=batches, max_seconds=remaining) if remaining > 0 else None

    def _maintain(self, context: Context, result: TableResult, request: Request) -> None:
        table, session = result.table, self.session
        self.progress.begin(str(table), None, "measuring")

        def observe(event: Event) -> None:
            result.observe(event)
            _show(self.progress, event)

        try:
            maintain(table, request, context, observe)
            add_exit_codes(context, result, session)
        except TableTimeout as timeout:
            session.say(str(timeout))
            result.interrupt(timeout.error.code, timeout.error.message, timeout.error.fix)
        except IcebergMaintError as error:
            session.say_of(table, error)
            result.error = {"code": error.code, "message": error.message, "fix": error.fix}
            result.codes.add(error.exit_code)
        except Exception as error:  # noqa: BLE001 - the failure of one table must not stop the others
            session.say(traceback.format_exc())
            line = f"{type(error).__name__}: {' '.join(str(error).split())}"
            session.say(f"{table}: unexpected {line}")
            result.error = {"code": None, "message": line, "fix": ""}
            result.codes.add(EXIT_FAILED)


def _store_waits(results: Iterable[TableResult], context: Context) -> None:
    """Stores the waits for the fleet's budget again. The cycle before the run did not know the tables that the run was
    first to measure; without this one, the next cycle stores their waits."""
    budget = context.policies.fleet_budget
    if budget is not None and any(o.reason is Reason.FLEET_BUDGET for r in results for o in r.all_outcomes()):
        with suppress(IcebergMaintError):
            store_waits(context, budget)


def _show(progress: RunProgress, event: Event) -> None:
    match event:
        case PlanReady():
            progress.add_steps(len(event.resumed) + len(event.plan.batches))
        case BatchStarted():
            files = f": {counted(event.batch.input_files, 'file')}" if event.batch.input_files else ""
            progress.note(f"{event.batch.operation}{files}")
        case BatchEnded():
            progress.step()
        case Progress():
            progress.note(progress_line(event.step, event.batch, event.seconds, event.work))
        case OperationEnded():
            pass
