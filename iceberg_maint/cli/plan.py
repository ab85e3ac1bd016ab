"""The command `plan`: what a run would do and why, and what is due and not in the plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from iceberg_maint.cli.command import command, overrides_option
from iceberg_maint.cli.context import Session
from iceberg_maint.core.decisions.table_decision import verdict_on
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import (
    ALL_OPERATIONS,
    DATA_OPERATIONS,
    HOUSEKEEPING_OPERATIONS,
    PartitionKey,
    TableId,
)
from iceberg_maint.core.model.reasons import Decision, Reason, Verdict
from iceberg_maint.core.planning.plan import Batch, Leftover, Plan
from iceberg_maint.core.planning.work import (
    ConvertEqualityDeletes,
    ExpireSnapshots,
    RemoveOrphanFiles,
    RewriteDataFiles,
    RewriteManifests,
    RewritePositionDeleteFiles,
    Strategy,
    table_work,
    writer_reason,
)
from iceberg_maint.core.policy.data import Mode, Policy
from iceberg_maint.errors import EXIT_DONE
from iceberg_maint.report.deferrals import deferral
from iceberg_maint.report.formatting import counted, duration, number, partitions_text, sentence, size
from iceberg_maint.report.grid import Column, draw_grid, draw_more, write
from iceberg_maint.report.housekeeping_text import planned_housekeeping
from iceberg_maint.report.json_documents import Document
from iceberg_maint.report.verdicts import Status, coloured, status_of

SHOWN_PARTITIONS = 10
_COLUMNS = (Column("partition"), Column("status"), Column("why", prose=True))


@click.command()
@click.argument("name", metavar="TABLE")
@click.option("--partition", "partitions", multiple=True, help="Only this partition; may be repeated.")
@click.option("--force", is_flag=True, help="Also plan healthy partitions.")
@overrides_option
@command
def plan(
    session: Session, name: str, partitions: tuple[str, ...], force: bool, overrides: dict[str, str]
) -> int:
    """Show what a run would do and why. Changes nothing.

    With --partition, only the operations on data of these partitions.
    """
    from iceberg_maint.loop.assess import Demand, assess
    from iceberg_maint.loop.plan_batches import make_plans, memory_of_plans, shortage
    from iceberg_maint.report.formatting import ESTIMATE_RECORDS, estimate_seconds
    from iceberg_maint.report.json_documents import plan_document
    from iceberg_maint.report.plan_notes import (
        codec_sentence,
        draw_spark_memory,
        readers_sentence,
        spark_memory_document,
    )
    from iceberg_maint.report.verdicts import draw_verdict, verdict_document

    context = session.context(overrides)
    table = context.catalogs.find(name)
    advised = False

    def policy_to_act(table: TableId, properties: Mapping[str, str]) -> Policy:
        nonlocal advised
        policy = context.policies.of_table(table, properties)
        advised = policy.mode is Mode.ADVISE
        return replace(policy, mode=Mode.ACT)

    acting = replace(context, policies=replace(context.policies, of_table=policy_to_act))
    operations = DATA_OPERATIONS if partitions else ALL_OPERATIONS
    requested = frozenset(map(PartitionKey, partitions)) or None
    assessment = assess(table, acting, operations, demand=Demand(requested, force)).in_run_order()
    plans = make_plans(assessment, acting)
    records = context.ledger.records.newest(str(table), ESTIMATE_RECORDS)
    parts = [
        (plan, decision, estimate_seconds(plan.input_bytes, records))
        for plan, decision in zip(plans, assessment.decisions, strict=True)
    ]

    measured = assessment.measured
    needed = memory_of_plans((b for plan in plans for b in plan.batches), assessment.policy, context)
    warning = shortage(str(table), needed, context)
    settings = (
        ()
        if needed is None or context.engine.spark.memory is None
        else needed.settings(context.engine.spark.memory)
    )
    verdict = verdict_on(True, assessment.history.faults)
    configured = context.policies.of_table(table, assessment.state.properties)
    batches = [b for plan in plans for b in plan.batches]
    readers = readers_sentence(measured, configured, assessment.state.properties, batches)
    codec = codec_sentence(assessment.state.properties, batches)
    document = {
        "table": str(table),
        "executes": not advised,
        "failure": verdict_document(verdict),
        **totals_document(*totals_of(measured, plans)),
        "spark_memory": spark_memory_document(needed, settings),
        "readers": readers,
        "codec": codec,
        "operations": [plan_document(*part) for part in parts],
    }

    def draw(console: Any) -> None:
        draw_plans(
            console,
            str(table),
            measured,
            parts,
            (f"codec of rewritten files: {codec}" if codec else "", readers),
            advised=advised,
        )
        draw_verdict(console, verdict)
        draw_spark_memory(console, needed, settings)

    session.emit(document, draw)
    if warning is not None:
        session.say(str(warning))
    return EXIT_DONE


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
                why = (deferral(decision) if refused else "") or sentence(p.reason)
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


SHOWN_BATCHES = 20
_TOTALS = (Column(""), Column("before", right=True), Column("after", right=True))
_BATCHES = (
    Column("batch", priority=3),
    Column("operation", priority=1, is_constant_shown=False),
    Column("partitions", prose=True),
    Column("reason", priority=2, is_constant_shown=False),
    Column("files", right=True),
    Column("size", right=True),
)

PlanPart = tuple[Plan, Decision, float | None]
"""The plan of one operation, its decision, and the estimated seconds."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The figures of a table that a plan changes."""

    data_files: int
    delete_files: int
    snapshots: int


def totals_of(measured: Measured, plans: Sequence[Plan]) -> tuple[Totals, Totals]:
    """The table now, and as the plans expect it after the run. A rewrite drops the deletes of its data files alone. The
    number of delete files after a conversion or merge is the greatest possible. Each commit adds a snapshot, except that
    of an expiry."""
    total = measured.total()
    before = Totals(total.data_files, total.delete_files, measured.table_health.snapshots)
    files, written, dropped, snapshots = 0, 0, set[tuple[str, int | None]](), 0
    for batch in (b for plan in plans for b in plan.batches):
        snapshots += 1
        match batch.work:
            case RewriteDataFiles():
                files += batch.input_files - batch.expected_output_files
                dropped |= {(d.path, None) for d in batch.equality_deletes if d.drop}
                dropped |= {d.identity for d in batch.applied_deletes if d.referenced_data_file}
            case ConvertEqualityDeletes() | RewritePositionDeleteFiles():
                written += batch.input_files
                dropped |= {(d.path, None) for d in batch.equality_deletes if d.drop}
                dropped |= {d.identity for d in batch.position_deletes}
            case ExpireSnapshots() as work:
                snapshots -= 1 + len(work.snapshots)
            case RemoveOrphanFiles():
                snapshots -= 1
            case RewriteManifests():
                pass
    return before, Totals(
        before.data_files - files,
        before.delete_files - len(dropped) + written,
        before.snapshots + snapshots,
    )


def totals_document(before: Totals, after: Totals) -> Document:
    """The keys `before` and `after` of `plan --json`."""
    return {"before": asdict(before), "after": asdict(after)}


def draw_plans(
    console: Console,
    table: str,
    measured: Measured,
    parts: Sequence[PlanPart],
    notes: Iterable[str],
    *,
    advised: bool,
) -> None:
    """Draws the plans of one table. `notes` are sentences on what it writes, or empty."""
    batches = [(plan, b) for plan, _, _ in parts for b in plan.batches]
    seconds = [s for plan, _, s in parts if plan.batches and plan.operation not in HOUSEKEEPING_OPERATIONS]
    write(console, f"[bold]{escape(table)}[/]: {_sentence(parts, seconds)}")
    if advised and batches:
        write(console, "mode is advise: a run would not execute this plan")
    if batches:
        console.print()
        _draw_totals(console, measured, parts)
    rows = [_row(plan, batch) for plan, batch in batches if plan.operation not in HOUSEKEEPING_OPERATIONS]
    if rows:
        console.print()
        draw_grid(console, _BATCHES, rows[:SHOWN_BATCHES])
        draw_more(console, len(rows) - SHOWN_BATCHES)
    for line in dict.fromkeys(
        f"{batch.strategy.value}: {reason}" for _, batch in batches if (reason := _reason(batch))
    ):
        write(console, escape(line), "  ")
    for note in filter(None, notes):
        write(console, escape(note), "  ")
    chores = [(plan, b) for plan, b in batches if plan.operation in HOUSEKEEPING_OPERATIONS]
    if chores:
        console.print()
    for plan, batch in chores:
        write(console, f"{plan.operation}: {escape(planned_housekeeping(table_work(batch.work)))}", "  ")
    draw_unplanned(console, [(plan, decision) for plan, decision, _ in parts])


def _sentence(parts: Sequence[PlanPart], seconds: Sequence[float | None]) -> str:
    plans = [plan for plan, _, _ in parts if plan.batches]
    if not plans:
        reasons = {d.reason for _, d, _ in parts} - {Reason.OTHER_OPERATION}
        # Work that waits is beyond a threshold.
        if any(d.verdict is Verdict.DEFER for _, d, _ in parts):
            reasons.discard(Reason.HEALTHY)
        decisions = {sentence(d.reason): None for _, d, _ in parts if d.reason in reasons}
        return f"nothing to do: {'; '.join(decisions)}"
    batches = [b for plan in plans for b in plan.batches if plan.operation not in HOUSEKEEPING_OPERATIONS]
    chores = [plan.operation.value for plan in plans if plan.operation in HOUSEKEEPING_OPERATIONS]
    at = f", at snapshot {plans[0].snapshot_id}"
    if not batches:
        return f"{', '.join(chores)}{at}"
    files = sum(b.input_files for b in batches)
    read = f", {counted(files, 'file')} with {size(sum(b.input_bytes for b in batches))} to read"
    known = [s for s in seconds if s is not None]
    time = f", about {duration(sum(known))}" if known and len(known) == len(seconds) else ""
    also = f"; also {', '.join(chores)}" if chores else ""
    return f"{counted(len(batches), 'batch', 'batches')}{read if files else ''}{time}{at}{also}"


def _draw_totals(console: Console, measured: Measured, parts: Sequence[PlanPart]) -> None:
    before, after = totals_of(measured, [plan for plan, _, _ in parts])
    works = [b.work for plan, _, _ in parts for b in plan.batches]
    writes_deletes = any(isinstance(w, ConvertEqualityDeletes | RewritePositionDeleteFiles) for w in works)
    at_most = "≤ " if after.delete_files and writes_deletes else ""
    rows = [
        ["data files", number(before.data_files), number(after.data_files)],
        ["delete files", number(before.delete_files), f"{at_most}{number(after.delete_files)}"],
        ["snapshots", number(before.snapshots), number(after.snapshots)],
    ]
    if not before.delete_files:
        del rows[1]
    draw_grid(console, _TOTALS, rows)


def _row(plan: Plan, batch: Batch) -> list[str]:
    return [
        batch.batch_id,
        plan.operation,
        escape(partitions_text(batch.partitions)),
        ", ".join(r.value for r in batch.reasons),
        _files(batch),
        size(batch.input_bytes),
    ]


def _reason(batch: Batch) -> str:
    """Why Spark writes the rows of the batch; "" for other work."""
    by_policy = "by rewrite_data_files.strategy" if batch.strategy is Strategy.NATIVE else ""
    return writer_reason(batch.work) or by_policy


def _files(batch: Batch) -> str:
    match batch.work:
        case ConvertEqualityDeletes():
            return f"{counted(len(batch.equality_deletes), 'equality delete')} → positions"
        case RewritePositionDeleteFiles():
            return f"{counted(len(batch.position_deletes), 'delete file')} → ≤ {number(batch.input_files)}"
        case _:
            return f"{number(batch.input_files)} → {number(batch.expected_output_files)}"
