"""The texts of the checks: the criterion of each, and a finding as a sentence."""

from __future__ import annotations

from iceberg_maint.core.model.reasons import Check, Finding
from iceberg_maint.defs.names import NO_PROGRESS_CHECK, QUARANTINE_CHECK

DESCRIPTIONS = {
    Check.SMALL_FILES.value: "There are too few small files to gain from a rewrite.",
    Check.DELETE_FILES.value: "There are few enough deletes for fast reads.",
    Check.LAYOUT.value: "Files are sorted well enough for readers to skip most of them.",
    QUARANTINE_CHECK: "No partition is quarantined.",
    NO_PROGRESS_CHECK: "The table can be read, and its maintenance has an effect.",
    Check.MANIFESTS.value: "Manifests are few and well grouped enough for quick planning.",
    Check.SNAPSHOTS.value: "No snapshot is kept longer than its retention and its holders require.",
    Check.ORPHAN_FILES.value: "Storage was searched for orphan files recently.",
}
"""Check → its criterion, which a check that passes shows."""


def finding_sentence(finding: Finding) -> str:
    """The metric of a finding, its value and its threshold."""
    if finding.metric == "orphan_scans":
        return f"No search for orphan files has ended with success yet ({finding.threshold_key})"
    return f"{finding.metric} is {finding.value:g}, threshold {finding.threshold:g} ({finding.threshold_key})"
