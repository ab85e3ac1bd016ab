"""The checks of a whole table: quarantine and progress, from the ledger's history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import dagster as dg

from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.decisions.table_verdict import verdict_on
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.check_texts import DESCRIPTIONS
from iceberg_maint.defs.names import NO_PROGRESS_CHECK, QUARANTINE_CHECK
from iceberg_maint.defs.translator import IcebergTranslator
from iceberg_maint.report.formatting import shortened
from iceberg_maint.report.table_verdict import verdict_sentence

STALLED_AFTER = 2
"""Number of attempts in a row without effect, or without a report, that fails `no_progress`."""

NOT_MEASURED = "The table was not measured yet. The first observation is requested."


def table_evaluations(
    table: TableId, translator: IcebergTranslator, history: TableHistory
) -> Iterator[dg.AssetCheckEvaluation]:
    """The table checks, from the ledger's history."""
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
        description=why if problems else DESCRIPTIONS[name],
        metadata={"problems": dg.MetadataValue.int(len(problems))},
    )
