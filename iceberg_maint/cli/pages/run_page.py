"""The screen of `run`: a progress bar per table, on a terminal only, and the outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from iceberg_maint.cli.pages.console import draw_outcome, word
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import CUT_SHORT, Reason
from iceberg_maint.core.outcomes.outcome import OperationOutcome, OutcomeStatus, combine_outcomes
from iceberg_maint.report.formatting import counted, escape_control_chars, outcome_sentence
from iceberg_maint.report.grid import write


class _NotedProgress(Progress):
    """A progress bar with a line of text below it, which may be longer than the bar leaves room for."""

    note = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        if self.note:
            yield Text(f"  {self.note}")


class RunProgress:
    """Progress bars of batches on `console`; shows nothing if `console` is no terminal."""

    def __init__(self, console: Console) -> None:
        self._progress = _NotedProgress(
            TextColumn("{task.description}"),
            BarColumn(20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, name: str, total: int | None, note: str = "") -> None:
        """Replaces the current bar by a new one."""
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(escape(escape_control_chars(name)), total=total)
        self.note(note)

    def note(self, text: str) -> None:
        """Shows the current work."""
        self._progress.note = escape_control_chars(text)
        self._progress.refresh()

    def add_steps(self, count: int) -> None:
        """Raises the number of steps."""
        if self._task is not None:
            before = self._progress.tasks[0].total or 0
            self._progress.update(self._task, total=before + count)

    def step(self) -> None:
        """Advances the bar by one step."""
        if self._task is not None:
            self._progress.advance(self._task)


_QUIET = (Reason.HEALTHY, Reason.OTHER_OPERATION, Reason.DISABLED)
_Failure = tuple[Operation, str]
"""An operation and the cause that its batches name."""


def draw_run(console: Console, tables: Sequence[Sequence[OperationOutcome]]) -> None:
    """Draws the outcomes of each table: operations with work or without success, one line about the others that
    wait, and last the outcome of the table. Of several tables it counts those with nothing due, those searched for orphan files without one, and those
    that failed for the same cause outside of them."""
    counts = len(tables) > 1
    failures = Counter(f for outcomes in tables for o in outcomes if counts and (f := _failure_of(o)))
    shared = {failure: n for failure, n in failures.items() if n > 1}
    healthy = searched = 0
    for outcomes in tables:
        vain = [o for o in outcomes if counts and _is_vain_search(o)]
        idle = [o for o in outcomes if _is_idle(o)]
        failed = [o for o in outcomes if _failure_of(o) in shared]
        worked = [o for o in outcomes if o not in vain and o not in idle and o not in failed]
        said = {o.reason for o in worked}.intersection(CUT_SHORT).union(_QUIET)
        waiting = [o for o in idle if o.reason not in said]
        searched += bool(vain)
        for outcome in worked:
            draw_outcome(console, outcome)
        if worked or waiting:
            _draw_idle(console, waiting)
            if len(worked) + bool(waiting) > 1 and not _is_said(waiting, outcomes):
                _draw_table(console, outcomes)
        elif counts:
            healthy += bool(outcomes) and not failed
        else:
            off = [o for o in idle if o.reason is Reason.DISABLED]
            on = [o for o in idle if o not in off]
            _draw_idle(console, off + [o for o in on if o.reason is idle[-1].reason])
    _draw_shared(console, shared)
    texts = [f"{counted(healthy, 'table')} with nothing due"] if healthy else []
    if searched:
        texts.append(f"{counted(searched, 'table')} searched for orphan files without one")
    if texts:
        write(console, f"{'; '.join(texts)} (--json names each)")


def _draw_table(console: Console, outcomes: Sequence[OperationOutcome]) -> None:
    """Draws the outcome of the table, as the last of several lines."""
    whole = combine_outcomes(outcomes)
    sentence = outcome_sentence(whole.outcome, whole.reason, ran=bool(whole.batches))
    status = word(whole.outcome.value)
    write(console, f"[bold]{escape(whole.table)}[/]: {status} {whole.reason.value} - {sentence}")


def _is_said(waiting: Sequence[OperationOutcome], outcomes: Sequence[OperationOutcome]) -> bool:
    """Whether the line about the operations that wait is that of the table."""
    whole = combine_outcomes(outcomes)
    return {(o.outcome, o.reason) for o in waiting} == {(whole.outcome, whole.reason)}


def _is_idle(outcome: OperationOutcome) -> bool:
    return outcome.outcome is OutcomeStatus.NO_OP and not outcome.batches


def _failure_of(outcome: OperationOutcome) -> _Failure | None:
    """The failure of an operation for a cause outside of its table. Other tables may share it."""
    messages = {b.message for b in outcome.batches} or {outcome.message}
    if outcome.outcome is not OutcomeStatus.FAILED or outcome.reason is not Reason.ENVIRONMENT:
        return None
    return (outcome.operation, messages.pop()) if len(messages) == 1 else None


def _draw_shared(console: Console, failures: Mapping[_Failure, int]) -> None:
    for (operation, cause), tables in failures.items():
        sentence = outcome_sentence(OutcomeStatus.FAILED, Reason.ENVIRONMENT, ran=True)
        status = word(OutcomeStatus.FAILED.value)
        write(
            console,
            f"[bold]{counted(tables, 'table')}[/] {operation}: {status} {Reason.ENVIRONMENT.value} - {sentence} "
            "(--json names each)",
        )
        write(console, f"  {escape(escape_control_chars(cause))}", "    ")


def _is_vain_search(outcome: OperationOutcome) -> bool:
    """Whether the operation searched for orphan files, and neither moved nor deleted one."""
    return (
        outcome.operation is Operation.REMOVE_ORPHAN_FILES
        and outcome.outcome is OutcomeStatus.NO_OP
        and outcome.reason is Reason.ORPHAN_FILES
        and not any(b.message for b in outcome.batches)
    )


def _draw_idle(console: Console, outcomes: Sequence[OperationOutcome]) -> None:
    """Draws one line: each reason once, with its operations if they have different reasons."""
    if not outcomes:
        return
    reasons = dict.fromkeys((o.reason, o.message) for o in outcomes)
    texts = []
    for reason, message in reasons:
        named = ", ".join(o.operation for o in outcomes if (o.reason, o.message) == (reason, message))
        of = f" ({named})" if len(reasons) > 1 else ""
        note = f" ({message})" if message else ""
        texts.append(f"{reason.value}{of} - {outcome_sentence(OutcomeStatus.NO_OP, reason, ran=False)}{note}")
    write(
        console,
        f"[bold]{escape(outcomes[0].table)}[/]: {word(OutcomeStatus.NO_OP.value)} {escape('; '.join(texts))}",
    )
