"""The screen of `run`: the work of each table; at most one line for a table without work, one for all healthy ones."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import OperationOutcome, OutcomeStatus
from iceberg_maint.report.console import draw_outcome, word
from iceberg_maint.report.formatting import counted, outcome_sentence
from iceberg_maint.report.grid import write

_QUIET = (Reason.HEALTHY, Reason.EMPTY, Reason.OTHER_OPERATION)


def draw_run(console: Console, tables: Sequence[Sequence[OperationOutcome]], *, verbose: bool) -> None:
    """Draws the outcomes of each table: operations with work or without success, then one line about the others that
    wait. Of several tables it counts those with nothing due, and those whose storage was searched in vain; `verbose` draws
    each."""
    counts = len(tables) > 1 and not verbose
    healthy = searched = 0
    for outcomes in tables:
        vain = [o for o in outcomes if counts and _is_vain_search(o)]
        idle = [o for o in outcomes if _is_idle(o)]
        waiting = [o for o in idle if o.reason not in _QUIET]
        worked = [o for o in outcomes if o not in vain and o not in idle]
        searched += bool(vain)
        for outcome in worked:
            draw_outcome(console, outcome)
        if worked or waiting:
            _draw_idle(console, waiting)
        elif counts:
            healthy += bool(outcomes)
        else:
            _draw_idle(console, idle[-1:])
    texts = [f"{counted(healthy, 'table')} with nothing due"] if healthy else []
    if searched:
        texts.append(f"{counted(searched, 'table')} searched for orphan files without one")
    if texts:
        write(console, f"{'; '.join(texts)} (--verbose names each)")


def _is_idle(outcome: OperationOutcome) -> bool:
    return outcome.outcome is OutcomeStatus.NO_OP and not outcome.batches


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
