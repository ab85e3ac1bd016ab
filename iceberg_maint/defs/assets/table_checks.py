"""The checks of housekeeping: its decisions as check evaluations of Dagster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import dagster as dg

from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.decisions.table_decision import verdict_on
from iceberg_maint.core.model.ids import Operation, TableId, command_line
from iceberg_maint.core.model.reasons import CHECK_OF, SENTENCES, Check, Reason
from iceberg_maint.core.outcomes.attestation import Attestation
from iceberg_maint.core.outcomes.outcome import SUCCESSFUL
from iceberg_maint.core.removal.orphan_rules import sign
from iceberg_maint.defs.assets.housekeeping_metadata import housekeeping_check_metadata
from iceberg_maint.defs.assets.partition_checks import finding_sentence
from iceberg_maint.defs.assets.table_specs import DESCRIPTIONS
from iceberg_maint.defs.names import ATTESTED_CHECK, NO_PROGRESS_CHECK, QUARANTINE_CHECK
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.errors import printable
from iceberg_maint.loop.assess import Assessment
from iceberg_maint.ports.stored import Report
from iceberg_maint.report.deferrals import deferral
from iceberg_maint.report.formatting import counted, shortened, size
from iceberg_maint.report.verdicts import verdict_sentence


def housekeeping_evaluations(
    assessment: Assessment,
    translator: IcebergTranslator,
    last_scan: Report | None,
    last_expiry: Report | None = None,
) -> Iterator[dg.AssetCheckEvaluation]:
    """The checks of the housekeeping operations that `assessment` decided on.

    A check passes if its operation is turned off or the table's owner forbids it. The metadata shows
    what would be removed, and what holds it. `last_scan` is the table's last orphan scan, and `last_expiry` its
    last expiry; the function does not read storage.
    """
    for decision in assessment.decisions:
        operation = decision.operation
        if operation not in CHECK_OF:
            continue
        findings = [f for p in decision.partitions for f in p.findings]
        turned_off = decision.reason in (Reason.DISABLED, Reason.GC_DISABLED)
        skew = decision.evidence.get("clocks")
        passed = (not findings or turned_off) and skew is None
        name = CHECK_OF[operation].value
        description = "; ".join(map(finding_sentence, findings)) or (
            SENTENCES[decision.reason] if turned_off else _passing(name, last_scan)
        )
        if findings and (delay := deferral(decision)):
            description += f"; retained by {delay}"
        if skew is not None:
            description = f"{SENTENCES[Reason.CLOCK_SKEW]}: {skew}. {description}"
        if operation is Operation.REMOVE_ORPHAN_FILES:
            description += _waiting(last_scan)
        if retainers := decision.evidence.get("retained_by"):
            description += f" Retained by {retainers}."
        if operation is Operation.EXPIRE_SNAPSHOTS:
            description += _released(last_expiry)
        yield dg.AssetCheckEvaluation(
            asset_key=translator.get_housekeeping_key(assessment.state.table),
            check_name=name,
            passed=passed,
            severity=dg.AssetCheckSeverity.WARN,
            description=printable(description),
            metadata=housekeeping_check_metadata(assessment, decision, last_scan, last_expiry),
        )


def _released(last_expiry: Report | None) -> str:
    """What the last expiry says of the files that expiries released."""
    if last_expiry is None:
        return ""
    counts = last_expiry.outcome.counts
    files, size_bytes = (counts.get(f"released_retained_{what}", 0) for what in ("files", "bytes"))
    retained = (
        f" {files} released files ({size(size_bytes)}) are retained before their deletion." if files else ""
    )
    return f"{retained} {last_expiry.outcome.message}".rstrip()


def _passing(name: str, last_scan: Report | None) -> str:
    """The criterion of a check that passes, or why no search for orphan files is due although the last one
    was refused or failed."""
    refused = last_scan is not None and last_scan.outcome.outcome not in SUCCESSFUL
    if name == Check.ORPHAN_FILES.value and refused:
        return "No search for orphan files is due. The last one did not end with success."
    return DESCRIPTIONS[name]


def _waiting(last_scan: Report | None) -> str:
    if last_scan is None:
        return ""
    files = sum(h.files for h in (last_scan.outcome.retained or ()))
    waiting = (
        f" {counted(files, 'file is in the trash or waits', 'files are in the trash or wait')} for approval."
        if files
        else ""
    )
    refused = last_scan.outcome.reason is Reason.REFUSED
    message = last_scan.outcome.message if refused else sign(last_scan.outcome.unlogged)
    return f"{waiting} {message}".rstrip()


STALLED_AFTER = 2
"""Number of attempts in a row without effect, or without a report, that fails `no_progress`."""

NOT_MEASURED = "The table was not measured yet. The first observation is requested."


def table_evaluations(
    table: TableId, translator: IcebergTranslator, history: TableHistory, attested: Attestation | None
) -> Iterator[dg.AssetCheckEvaluation]:
    """The table checks, from the ledger's history and from how far the table's commits are attested."""
    quarantined = sorted(p for p, h in history.partitions.items() if h.quarantined)
    yield _table_evaluation(
        table,
        translator,
        QUARANTINE_CHECK,
        quarantined,
        f"Quarantined until a person runs iceberg-maint release: {shortened(quarantined)}.",
        dg.AssetCheckSeverity.ERROR,
    )
    stalled = sorted(
        p
        for p, h in history.partitions.items()
        if not h.quarantined and max(h.ineffective, h.crashes, h.environment_failures) >= STALLED_AFTER
    )
    why = f"{STALLED_AFTER} or more attempts in a row without effect: {shortened(stalled) or 'none'}."
    if history.unknown_commits:
        why = f"{history.unknown_commits} commit(s) are neither confirmed nor refuted. {why}"
    verdict = verdict_on(True, history.faults)
    yield _table_evaluation(
        table,
        translator,
        NO_PROGRESS_CHECK,
        stalled or [f.partition for f in verdict.faults] or ["unknown"] * min(1, history.unknown_commits),
        verdict_sentence(verdict) or why,
        dg.AssetCheckSeverity.WARN,
    )
    yield _attested_evaluation(table, translator, attested)


def _attested_evaluation(
    table: TableId, translator: IcebergTranslator, attested: Attestation | None
) -> dg.AssetCheckEvaluation:
    """An error if a commit is red, a warning if one is unprovable. Commits that wait for a proof from files pass."""
    is_red = attested is not None and bool(attested.red)
    verdicts = () if attested is None else attested.red or attested.open
    texts = [f"Snapshot {v.snapshot_id} by {v.maintainer} is {v.status}: {v.detail}" for v in verdicts]
    why = f"{shortened(texts)}. See {command_line('attest', str(table))}."
    if not texts:
        why = DESCRIPTIONS[ATTESTED_CHECK]
        if attested is not None and attested.pending:
            why += f" {counted(attested.pending, 'commit waits', 'commits wait')} for the next attestation."
    return dg.AssetCheckEvaluation(
        asset_key=translator.get_asset_key(table),
        check_name=ATTESTED_CHECK,
        passed=not texts,
        severity=dg.AssetCheckSeverity.ERROR if is_red else dg.AssetCheckSeverity.WARN,
        description=printable(why),
        metadata={"problems": dg.MetadataValue.int(len(texts))},
    )


def unreadable_evaluation(
    table: TableId, translator: IcebergTranslator, error: str
) -> dg.AssetCheckEvaluation:
    """The failed check `no_progress` of a table that could not be read."""
    return _table_evaluation(
        table, translator, NO_PROGRESS_CHECK, [error], error, dg.AssetCheckSeverity.ERROR
    )


def unmeasured_evaluation(table: TableId, translator: IcebergTranslator) -> dg.AssetCheckEvaluation:
    """The check `no_progress` of a table that Dagster has never observed, as a warning."""
    return _table_evaluation(
        table, translator, NO_PROGRESS_CHECK, ["unmeasured"], NOT_MEASURED, dg.AssetCheckSeverity.WARN
    )


def _table_evaluation(
    table: TableId,
    translator: IcebergTranslator,
    name: str,
    problems: Sequence[str],
    why: str,
    severity: dg.AssetCheckSeverity,
) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=translator.get_asset_key(table),
        check_name=name,
        passed=not problems,
        severity=severity,
        description=printable(why) if problems else DESCRIPTIONS[name],
        metadata={"problems": dg.MetadataValue.int(len(problems))},
    )
