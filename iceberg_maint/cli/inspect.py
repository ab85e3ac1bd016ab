"""Commands that show what is known of tables: tables, observe, why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from iceberg_maint.cli.command import command, overrides_option
from iceberg_maint.cli.context import Session, most_severe_exit
from iceberg_maint.cli.pipes import pipes_option, report_to_dagster
from iceberg_maint.core.decisions.history import combine_histories
from iceberg_maint.core.decisions.table_decision import verdict_on
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import (
    ALL_OPERATIONS,
    DATA_OPERATIONS,
    HOUSEKEEPING_OPERATIONS,
    Operation,
    PartitionKey,
    TableId,
    command_line,
)
from iceberg_maint.core.model.reasons import Decision, Reason, Verdict
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.errors import EXIT_DONE, IcebergMaintError, UnknownTableError, with_code

if TYPE_CHECKING:
    from iceberg_maint.loop.assess import Assessment
    from iceberg_maint.loop.context import Context
    from iceberg_maint.loop.fleet.known_tables import UnchangedTable
    from iceberg_maint.loop.read_table import TableReading
    from iceberg_maint.report.fleet import TableTrend
    from iceberg_maint.report.plan_notes import Advice


@click.command()
@command
def tables(session: Session) -> int:
    """List tables with status, backlog and estimated time, the worst first.

    The status is that of the data. `why` also shows manifests, snapshots and orphan files.

    A table that has changed since its last measurement is measured again.
    """
    from iceberg_maint.cli.pages.run_page import RunProgress
    from iceberg_maint.loop.fleet.read_fleet import in_order
    from iceberg_maint.report.deferrals import draw_pauses, pause_documents
    from iceberg_maint.report.json_documents import error_document, unlisted_documents
    from iceberg_maint.report.verdicts import draw_tables, table_summary

    context = session.context()
    rows: list[dict[str, Any]] = []
    codes = {0}
    listing = session.listing(context, codes)
    listed = listing.tables
    with RunProgress(session.logs()) as progress:
        progress.begin("measuring", len(listed))
        for table, row in in_order(listed, _statuses(session, context, listed)):
            progress.note(str(table))
            if isinstance(row, IcebergMaintError):
                codes.add(row.exit_code)
                session.say_of(table, row)
                rows.append({"table": str(table), "error": error_document(row)})
            else:
                codes.add(row.pop("exit_code"))
                rows.append(row)
            progress.step()
    pauses = context.ledger.registry.pauses()

    def draw(console: Any) -> None:
        draw_pauses(console, pauses)
        draw_tables(console, rows, session.short_name)

    document = {
        "pauses": pause_documents(pauses),
        "summary": table_summary(rows).document(),
        "tables": rows,
        "unlisted_catalogs": unlisted_documents(listing.errors),
    }
    session.emit(document, draw)
    return most_severe_exit(codes)


@click.command()
@click.argument("names", metavar="[TABLE]...", nargs=-1)
@pipes_option
@overrides_option
@command
def observe(session: Session, names: tuple[str, ...], overrides: dict[str, str], pipes: bool) -> int:
    """Measure health from metadata, store it and print it.

    A table that has not changed since its last measurement is not read again. Without TABLE, the stored health of
    tables that their catalog no longer lists is deleted.
    """
    from iceberg_maint.cli.pages.console import draw_health
    from iceberg_maint.cli.pages.run_page import RunProgress
    from iceberg_maint.loop.fleet.known_tables import list_and_forget, verdicts_of
    from iceberg_maint.loop.fleet.read_fleet import observe_tables
    from iceberg_maint.report.json_documents import error_document, health_document
    from iceberg_maint.report.verdicts import EXIT_CODES, verdict_document, verdict_sentence

    if pipes:
        return report_to_dagster(session, names, overrides)
    context = session.context(overrides)
    chosen: Sequence[TableId] = [context.catalogs.find(name) for name in names]
    shown: list[Measured | dict[str, Any]] = []
    codes = {0}
    if not names:
        listing = list_and_forget(context)
        chosen = listing.tables
        for why in listing.errors.values():
            codes.add(why.exit_code)
            session.say(str(why))
    measured_tables: list[Measured] = []
    with RunProgress(session.logs()) as progress:
        progress.begin("measuring", len(chosen))
        for table, health in observe_tables(chosen, context):
            progress.note(str(table))
            if isinstance(health, Measured):
                shown.append(health)
                measured_tables.append(health)
            else:
                codes.add(health.exit_code)
                session.say_of(table, health)
                shown.append({"table": str(table), "error": error_document(health)})
            progress.step()
    verdicts = verdicts_of(measured_tables, context)
    for table, verdict in verdicts.items():
        codes.add(EXIT_CODES[verdict.standing])
        if verdict.faults:
            session.say_of(table, verdict_sentence(verdict))

    def draw(console: Any) -> None:
        if not chosen:
            console.print("no tables")
        for number, measured in enumerate(m for m in shown if isinstance(m, Measured)):
            if number:
                console.print()
            draw_health(console, measured)

    def document() -> dict[str, Any]:
        return {
            "tables": [
                {**health_document(m), "failure": verdict_document(verdicts[m.table])}
                if isinstance(m, Measured)
                else m
                for m in shown
            ]
        }

    session.emit(document, draw)
    return most_severe_exit(codes)


@click.command()
@click.argument("name", metavar="TABLE")
@click.option("--partition", help="Only this partition.")
@click.option("--all", "everything", is_flag=True, help="Every metric, partition, cursor and policy value.")
@overrides_option
@command
def why(
    session: Session, name: str, partition: str | None, everything: bool, overrides: dict[str, str]
) -> int:
    """Explain a table's decision on one page.

    Shows the last and the next decision, what would change the decision, the worst partitions with value and
    threshold, housekeeping with what retains snapshots, and the policy values that are not built-in. With
    --all also every other metric, partition and policy value, and the cursor of each operation. --json always
    has all of them.
    """
    from iceberg_maint.cli.pages.console import draw_explanation
    from iceberg_maint.cli.pages.why_page import draw_why
    from iceberg_maint.loop.assess import assess
    from iceberg_maint.loop.plan_batches import limit_after_conflicts
    from iceberg_maint.report.explain import Evidence, explain, explanation_document
    from iceberg_maint.report.formatting import ESTIMATE_RECORDS
    from iceberg_maint.report.housekeeping_text import explain_housekeeping
    from iceberg_maint.report.plan_notes import codec_sentence, readers_sentence

    context = session.context(overrides)
    table = context.catalogs.find(name)
    operations = DATA_OPERATIONS if partition else ALL_OPERATIONS
    assessment = assess(table, context, operations)
    data = assessment.only(DATA_OPERATIONS)
    if partition is not None and partition not in data.measured.partitions:
        raise UnknownTableError(
            "ICM-126",
            f"{table} has no live files in partition '{partition}'.",
            f"list the keys with `{command_line('observe', str(table))}`.",
        )
    effective = session.config().policy_for(table, data.state.properties, overrides)
    records = context.ledger.records.newest(str(table), ESTIMATE_RECORDS)
    last = next((r for r in records if r.operation in DATA_OPERATIONS), None)
    last_scan = context.ledger.records.last_report(data.state.uuid, Operation.REMOVE_ORPHAN_FILES)
    evidence = Evidence(
        data.decision if partition is None else _narrowed(data.decision, PartitionKey(partition)),
        data.measured,
        effective.policy,
        effective.sources,
        data.history,
        last,
        context.clock.now_ms(),
    )
    housekeeping = tuple(
        explain_housekeeping(
            decision,
            history,
            assessment.retention,
            assessment.policy,
            last_scan.outcome if last_scan else None,
        )
        for decision, history in zip(assessment.decisions, assessment.histories, strict=True)
        if decision.operation in HOUSEKEEPING_OPERATIONS
    )
    cursors = context.ledger.work.cursors(data.state.uuid)
    limits = {o: limit_after_conflicts(o, data.state, context) for o in DATA_OPERATIONS}
    explained = replace(
        explain(evidence, housekeeping, _advice(session, context, data) if partition is None else None),
        cursors=tuple(cursor for name, cursor in cursors.items() if name in operations),
        limits={o: limit for o, limit in limits.items() if limit is not None},
        trend=None if partition is not None else _trend(context, data, effective.policy),
        writer_changes=() if partition is not None else data.measured.writer_changes,
        readers=readers_sentence(data.measured, effective.policy, data.state.properties),
        codec=codec_sentence(data.state.properties),
    )

    def draw(console: Any) -> None:
        if everything:
            draw_explanation(console, explained)
        else:
            draw_why(console, explained, one_partition=partition is not None)

    session.emit(explanation_document(explained), draw)
    return EXIT_DONE


def _trend(context: Context, data: Assessment, policy: Policy) -> TableTrend:
    from iceberg_maint.report.fleet import table_trend

    days = context.ledger.health.health_days([data.state.uuid]).get(data.state.uuid, ())
    return table_trend(str(data.measured.table), days, policy, context.clock.now_ms())


def _narrowed(decision: Decision, partition: PartitionKey) -> Decision:
    """The part of the decision that concerns one partition.

    A decision for a requested partition would differ: it ignores back-off, and the partition has the
    whole budget.
    """
    (part,) = (p for p in decision.partitions if p.partition == partition)
    if part.verdict is Verdict.RUN and decision.verdict is not Verdict.RUN:  # mode advise
        return replace(decision, partitions=(part,))
    return replace(
        decision, verdict=part.verdict, reason=part.reason, partitions=(part,), until_ms=part.until_ms
    )


def _advice(session: Session, context: Context, assessment: Assessment) -> Advice | None:
    """What a run would do with the data of a table in mode advise; None in another mode, or if the plan
    cannot be made."""
    from iceberg_maint.loop.plan_batches import make_plans
    from iceberg_maint.report.formatting import ESTIMATE_RECORDS
    from iceberg_maint.report.plan_notes import advice_of

    if assessment.decision.reason is not Reason.ADVISE:
        return None
    table = assessment.state.table
    try:
        plans = make_plans(assessment, context)
    except IcebergMaintError as error:
        session.say_of(table, error)
        return None
    records = context.ledger.records.newest(str(table), ESTIMATE_RECORDS)
    return advice_of(assessment.decision, plans, len(assessment.measured.partitions), records)


def _statuses(
    session: Session, context: Context, tables: Sequence[TableId]
) -> Iterator[tuple[TableId, dict[str, Any] | IcebergMaintError]]:
    from iceberg_maint.loop.fleet.read_fleet import read_tables

    for table, answer in read_tables(tables, context, observe=False):
        try:
            yield (
                table,
                answer if isinstance(answer, IcebergMaintError) else _status(session, context, table, answer),
            )
        except Exception as error:  # noqa: BLE001 - one table must not hide the others
            yield table, with_code(error)


def _status(
    session: Session, context: Context, table: TableId, answer: UnchangedTable | TableReading
) -> dict[str, Any]:
    """One table of `tables`, from stored health of the current snapshot; without it, from a new measurement.
    Mode advise with due partitions needs a measurement, because the advice is a plan."""
    from iceberg_maint.loop.assess import assess
    from iceberg_maint.loop.fleet.budget import stored_decision
    from iceberg_maint.loop.fleet.known_tables import UnchangedTable
    from iceberg_maint.report.deferrals import deferral
    from iceberg_maint.report.formatting import ESTIMATE_RECORDS, estimate_seconds
    from iceberg_maint.report.plan_notes import advice_document
    from iceberg_maint.report.verdicts import EXIT_CODES, table_status, verdict_document

    assessment = None
    if isinstance(answer, UnchangedTable):
        measured = answer.measured
        policy = context.policies.of_table(table, measured.maintenance_properties)
        decision = stored_decision(answer.histories, measured, policy, context)
        history = combine_histories(tuple(answer.histories.values()))
    if not isinstance(answer, UnchangedTable) or decision.reason is Reason.ADVISE:
        reading = None if isinstance(answer, UnchangedTable) else answer
        assessment = assess(table, context, reading=reading)
        measured, decision, history = assessment.measured, assessment.decision, assessment.history
    verdict = verdict_on(True, history.faults)
    parts = measured.partitions.values()
    due = decision.backlog()
    backlog_bytes = sum(p.candidate_bytes for p in due)
    records = context.ledger.records.newest(str(measured.table), ESTIMATE_RECORDS) if backlog_bytes else ()
    return {
        "table": str(measured.table),
        "snapshot": measured.snapshot_id,
        "status": table_status(decision, verdict).value,
        "verdict": decision.verdict.value,
        "reason": decision.reason.value,
        "until_ms": decision.until_ms,
        "evidence": dict(sorted(decision.evidence.items())),
        "partitions": len(measured.partitions),
        "due_partitions": len(due),
        "backlog_bytes": backlog_bytes,
        "estimate_seconds": estimate_seconds(backlog_bytes, records),
        "data_files": sum(p.data_files for p in parts),
        "small_files": sum(p.small_files for p in parts),
        "delete_files": sum(p.delete_files for p in parts),
        "deferred_by": deferral(decision) or None,
        "failure": verdict_document(verdict),
        "advice": advice_document(None if assessment is None else _advice(session, context, assessment)),
        "exit_code": EXIT_CODES[verdict.standing],
    }
