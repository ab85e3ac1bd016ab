"""What an operation changed, as text for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from rich.console import Console
from rich.markup import escape

from iceberg_maint.core.decisions.history import PartitionHistory, TableHistory
from iceberg_maint.core.decisions.manifests_decision import EMPTY_MANIFESTS
from iceberg_maint.core.decisions.snapshot_retention import Retention, described_retainers
from iceberg_maint.core.model.codec import to_data
from iceberg_maint.core.model.ids import (
    DATA_OPERATIONS,
    POSITION_OPERATIONS,
    WHOLE_TABLE,
    Operation,
    command_line,
)
from iceberg_maint.core.model.reasons import Decision, Finding, Reason, Verdict
from iceberg_maint.core.outcomes.outcome import BatchOutcome, OperationOutcome, OutcomeStatus
from iceberg_maint.core.planning.work import (
    ExpireSnapshots,
    MetadataWork,
    RemoveOrphanFiles,
    RewriteManifests,
)
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.core.removal.clock_skew import FIX
from iceberg_maint.core.removal.orphan_rules import sign
from iceberg_maint.report.deferrals import resumption
from iceberg_maint.report.formatting import (
    counted,
    escape_control_chars,
    metric_value,
    moment,
    number,
    sentence,
    size,
)
from iceberg_maint.report.grid import write
from iceberg_maint.report.json_documents import Document


def work_of(outcome: OperationOutcome) -> str:
    """What the operation changed: files rewritten, or what housekeeping removed. Without a change, the message."""
    batches = outcome.batches
    committed = [b for b in batches if b.snapshot_after is not None]
    facts = []
    if outcome.operation in DATA_OPERATIONS and committed:
        files = sum(b.input_files for b in committed), sum(b.output_files for b in committed)
        read, written = sum(b.input_bytes for b in committed), sum(b.output_bytes for b in committed)
        deletes = sum(b.delete_files_removed for b in committed)
        if outcome.operation in POSITION_OPERATIONS:
            facts.append(f"{counted(files[1], 'delete file')} ({size(written)}) written")
            facts.append(f"{counted(files[0], 'data file')} ({size(read)}) kept")
        else:
            facts.append(f"{number(files[0])} → {counted(files[1], 'file')}")
            facts.append(f"{size(read)} → {size(written)}")
        if deletes:
            facts.append(f"{counted(deletes, 'delete file')} dropped")
    facts += _housekeeping(outcome.operation, batches)
    failed = [b for b in batches if b.outcome in (OutcomeStatus.FAILED, OutcomeStatus.UNKNOWN)]
    failed = [b for b in failed if b.reason is not Reason.STALE]
    deferred = [b for b in batches if b.outcome is OutcomeStatus.DEFERRED and b.reason is Reason.CONFLICT]
    if deferred:
        facts.append(f"{counted(len(deferred), 'batch', 'batches')} lost to other writers")
    if failed:
        message = f": {failed[-1].message}" if failed[-1].message else ""
        facts.append(f"{counted(len(failed), 'batch', 'batches')} failed{message}")
    return ", ".join(facts) or outcome.message or "nothing changed"


def notes_of(outcome: OperationOutcome) -> list[str]:
    """The notes of batches that improved or rewrote data, such as the strategy that was used instead, each with its number of
    batches: many have the same one."""
    notes = Counter(b.message for b in outcome.batches if is_noted(outcome.operation, b) and b.message)
    return [f"{counted(batches, 'batch', 'batches')}: {note}" for note, batches in notes.items()]


def is_noted(operation: Operation, batch: BatchOutcome) -> bool:
    """Whether the message of a batch is a note on its success."""
    is_data_commit = batch.outcome is OutcomeStatus.COMMITTED and operation in DATA_OPERATIONS
    return batch.outcome is OutcomeStatus.IMPROVED or is_data_commit


def _housekeeping(operation: Operation, batches: Sequence[BatchOutcome]) -> list[str]:
    """What housekeeping removed. Each text is of a count that is not zero."""
    counts: dict[str, int] = {}
    for batch in batches:
        for name, value in batch.counts.items():
            counts[name] = counts.get(name, 0) + value
    facts = []
    if operation is Operation.REWRITE_MANIFESTS and counts.get("manifests_replaced"):
        created = counted(counts.get("manifests_created", 0), "manifest")
        facts.append(f"{number(counts['manifests_replaced'])} → {created}")
    for name, noun in (("expired_snapshots", "snapshot"), ("expired_refs", "ref")):
        if counts.get(name):
            facts.append(f"{counted(counts[name], noun)} expired")
    for files, total, end in (
        ("released_files", "released_bytes", "of expired snapshots retained before their deletion"),
        ("trashed_files", "trashed_bytes", "orphaned, moved to the trash"),
        ("swept_files", "swept_bytes", "deleted after their retention"),
        (
            "released_deleted_files",
            "released_deleted_bytes",
            "of expired snapshots deleted after their retention",
        ),
    ):
        if counts.get(files):
            facts.append(f"{counted(counts[files], 'file')} ({size(counts.get(total, 0))}) {end}")
    if operation is Operation.REMOVE_ORPHAN_FILES and not facts and "listed_files" in counts:
        facts.append(f"no orphan among {counted(counts['listed_files'], 'file')}")
    return facts


PUBLISH_CHANGE = (
    "publish or remove what is pending, or policy key write_audit_publish.mode: ignore, or a lower "
    "write_audit_publish.max_age_seconds"
)


@dataclass(frozen=True, slots=True)
class HousekeepingExplanation:
    """Explanation of one operation of housekeeping.

    `retained_by` names the retainers that keep snapshots from expiring. `next_ms` is the time when the
    operation is due again; None if other thresholds decide. `last_scan` is the refusal of the last
    orphan scan, or its sign of a second owner.
    """

    decision: Decision
    findings: tuple[Finding, ...]
    history: PartitionHistory
    last_done_ms: int | None
    next_ms: int | None
    retained_by: tuple[str, ...]
    change: str
    last_scan: str = ""


def explain_housekeeping(
    decision: Decision,
    history: TableHistory,
    retention: Retention,
    policy: Policy,
    last_scan: BatchOutcome | None = None,
) -> HousekeepingExplanation:
    """Explains a decision of `core.decisions.housekeeping.decide_housekeeping` on these values."""
    operation = decision.operation
    findings = tuple(f for p in decision.partitions for f in p.findings)
    every_seconds = {
        Operation.EXPIRE_SNAPSHOTS: policy.expire_snapshots.every_seconds,
        Operation.REMOVE_ORPHAN_FILES: policy.remove_orphan_files.every_seconds,
    }.get(operation)
    last_done_ms = history.last_done_ms
    retainers: tuple[str, ...] = ()
    if operation is Operation.EXPIRE_SNAPSHOTS:
        retainers = described_retainers(retention)
    past = history.of(WHOLE_TABLE)
    return HousekeepingExplanation(
        decision,
        findings,
        past,
        last_done_ms,
        None if every_seconds is None or last_done_ms is None else last_done_ms + every_seconds * 1000,
        retainers,
        _change(decision, past),
        _last_scan_text(last_scan) if operation is Operation.REMOVE_ORPHAN_FILES else "",
    )


def _last_scan_text(last: BatchOutcome | None) -> str:
    if last is None:
        return ""
    return last.message if last.reason is Reason.REFUSED else sign(last.unlogged)


def housekeeping_document(why: HousekeepingExplanation) -> Document:
    """One operation of housekeeping in `why --json`."""
    return {
        "operation": why.decision.operation,
        "verdict": why.decision.verdict.value,
        "reason": why.decision.reason.value,
        "findings": to_data(why.findings),
        "last_done_ms": why.last_done_ms,
        "next_ms": why.next_ms,
        "retained_by": list(why.retained_by),
        "history": to_data(why.history),
        "last_scan": why.last_scan,
        "change": why.change,
    }


def draw_housekeeping(console: Console, why: HousekeepingExplanation, colour: Mapping[str, str]) -> None:
    """One operation of housekeeping for a terminal."""
    verdict = why.decision.verdict.value
    console.print()
    write(
        console,
        f"[bold]{why.decision.operation}[/]: [{colour.get(verdict, 'white')}]{verdict}[/] "
        f"{why.decision.reason.value} - {sentence(why.decision.reason)}",
    )
    if why.decision.reason is Reason.PENDING_PUBLISH:
        write(console, f"  {escape(escape_control_chars(pending_publish(why.decision.evidence)))}")
    for f in why.findings:
        write(
            console,
            f"  {f.metric} is {metric_value(f.metric, f.value)}, threshold "
            f"{metric_value(f.metric, f.threshold)} ({f.threshold_key})",
        )
    if why.last_done_ms is not None:
        due = "" if why.next_ms is None else f"; due again at {moment(why.next_ms)}"
        write(console, f"  last success: {moment(why.last_done_ms)}{due}")
    if why.last_scan and why.last_scan not in why.change:
        write(console, f"  last scan: {escape(escape_control_chars(why.last_scan))}")
    for retainer in why.retained_by:
        write(console, f"  retained by {escape(retainer)}")
    if why.change:
        write(console, f"  to change the decision: {escape(why.change)}")


def planned_housekeeping(work: MetadataWork | RemoveOrphanFiles) -> str:
    """Describes what work on the table as a whole would do."""
    match work:
        case RewriteManifests():
            return f"regroup {counted(len(work.manifests), 'manifest')}"
        case ExpireSnapshots():
            refs = f" and refs {', '.join(work.refs)}" if work.refs else ""
            return f"expire {counted(len(work.snapshots), 'snapshot')}{refs}"
        case RemoveOrphanFiles():
            sweep = "delete trash past its retention, " if work.sweep else ""
            return f"{sweep}search for orphan files and move them to the trash"
        case _:
            assert_never(work)


def pending_publish(evidence: Mapping[str, str]) -> str:
    """What a decision with reason `pending_publish` waits for, since when and until when."""
    until = evidence.get("pending_until_ms")
    since = moment(int(evidence["pending_since_ms"]))
    end = "" if until is None else f" The wait ends at {moment(int(until))}."
    return f"{evidence['pending']} can be published since {since}, and no longer after a commit to main.{end}"


def _change(decision: Decision, past: PartitionHistory) -> str:
    table, reason = decision.table, decision.reason
    now = command_line("run", table, "--operation", decision.operation)
    release = command_line("release", table)
    if decision.verdict is Verdict.RUN:
        last = f"; last: {past.reason}" if past.environment_failures else ""
        return f"nothing: the next run does it ({now}){last}"
    if reason is Reason.DISABLED:
        return f"policy key {decision.evidence.get('key', '')}: true"
    if reason is Reason.GC_DISABLED:
        return "the table's owner sets gc.enabled=true"
    if reason is Reason.CLOCK_SKEW:
        return f"{FIX} {decision.evidence.get('clocks', '')}"
    if reason is Reason.QUARANTINED:
        return f"remove the cause ({past.reason}), then: {release}"
    if reason is Reason.BACK_OFF and past.not_before_ms is not None:
        return f"not before {moment(past.not_before_ms)}, or: {release}; last: {past.reason}"
    if reason is Reason.BLACKOUT:
        return f"the end of the blackout window {decision.evidence.get('window', '')}"
    if reason is Reason.HEALTHY and (empty := decision.evidence.get(EMPTY_MANIFESTS)):
        return (
            f"{empty} manifests list no live file: the table's next commit that removes files drops them, or now: "
            f"{now} --force"
        )
    return {
        Reason.PAUSED: resumption(decision),
        Reason.PENDING_PUBLISH: PUBLISH_CHANGE,
        Reason.ADVISE: "policy key mode: act",
        Reason.LEASE_HELD: "the end of the run that holds the table's lease",
    }.get(reason, "")
