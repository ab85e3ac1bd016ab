"""The part of the screen of `plan` about due work that the plan lacks."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from iceberg_maint.core.model.ids import PartitionKey
from iceberg_maint.core.model.reasons import Decision, Reason, Verdict
from iceberg_maint.core.planning.plan import Leftover, Plan
from iceberg_maint.report.formatting import counted, partitions_text, sentence, size
from iceberg_maint.report.grid import Column, draw_grid, draw_more, write
from iceberg_maint.report.holds import hold
from iceberg_maint.report.pay_back import reason_text
from iceberg_maint.report.status import Status, coloured, status_of

SHOWN_PARTITIONS = 10
_COLUMNS = (Column("partition"), Column("status"), Column("why", prose=True))


def draw_unplanned(console: Console, parts: Sequence[tuple[Plan, Decision]]) -> None:
    """Draws what is due and not in the plan, and why. Of a partition that a batch has, it draws only the files that no batch of
    the same operation has, and another operation that waits, by its name."""
    planned = {p for plan, _ in parts for b in plan.batches for p in b.partitions}
    rows: dict[tuple[PartitionKey, Reason], list[str]] = {}
    for plan, decision in parts:
        own = {p for b in plan.batches for p in b.partitions}
        for p in decision.partitions:
            if p.verdict not in (Verdict.DEFER, Verdict.REFUSE) or p.reason is Reason.OTHER_OPERATION:
                continue
            # A conversion takes the partitions that its deletes apply to together, also those that a budget delays.
            if p.partition not in own:
                prefix = f"{plan.operation}: " if p.partition in planned else ""
                status = coloured(status_of(p.verdict, p.reason, 1))
                refused = p.verdict is Verdict.REFUSE and p.reason is decision.reason
                why = (hold(decision) if refused else "") or reason_text(p)
                rows.setdefault(
                    (p.partition, p.reason), [_name(p.partition), status, escape(f"{prefix}{why}")]
                )
        for leftover in plan.leftovers:
            if leftover.reason is Reason.OTHER_OPERATION:
                continue
            if leftover.reason is Reason.NO_GAIN and leftover.partition in planned:
                continue
            key, status = (leftover.partition, leftover.reason), coloured(Status.WAITING)
            why = sentence(leftover.reason)
            if leftover.partition in own:
                rows[key] = [_name(leftover.partition), status, escape(f"the rest, {_rest(leftover)}: {why}")]
            else:
                prefix = f"{plan.operation}: " if leftover.partition in planned else ""
                rows.setdefault(key, [_name(leftover.partition), status, escape(f"{prefix}{why}")])
    if not rows:
        return
    console.print()
    write(console, "not in this plan:")
    draw_grid(console, _COLUMNS, list(rows.values())[:SHOWN_PARTITIONS])
    draw_more(console, len(rows) - SHOWN_PARTITIONS)


def _name(partition: PartitionKey) -> str:
    return escape(partitions_text((partition,)))


def _rest(leftover: Leftover) -> str:
    return f"{counted(leftover.files, 'file')} with {size(leftover.bytes)}"
