"""The verdict on a commit that claims to change no row, from its metadata and its files."""

from __future__ import annotations

from dataclasses import replace

from iceberg_maint.core.commits.attestation import Judgement, MetadataVerdict
from iceberg_maint.core.outcomes.verification import (
    MaintenanceCommit,
    Verification,
    VerificationStatus,
    unprovable,
)


def judge_by_metadata(
    commit: MaintenanceCommit, verdict: MetadataVerdict, *, reads_files: bool
) -> Verification:
    """Returns the verdict without a read of files. Without `reads_files` a commit that only they could decide is CONSISTENT,
    or UNPROVABLE if a hazard makes a change of rows likely."""
    facts, hazards = ([f"{v.rule}: {v.fact}" for v in of] for of in (verdict.facts, verdict.hazards))
    if facts:
        status, detail = VerificationStatus.RED, "; ".join(facts)
    elif verdict.judgement is Judgement.PROVED:
        status, detail = VerificationStatus.ATTESTED, f"proved from metadata: {verdict.summary}"
    elif hazards:
        status = VerificationStatus.UNPROVABLE
        detail = f"metadata makes a change of rows likely, and only the files can say: {'; '.join(hazards)}"
    else:
        status = VerificationStatus.CONSISTENT
        detail = f"metadata does not contradict it: {verdict.summary}"
    if status in (VerificationStatus.CONSISTENT, VerificationStatus.UNPROVABLE) and not reads_files:
        detail = f"{detail}; its files were not read"
    return replace(
        unprovable(commit, detail),
        status=status,
        facts=tuple(facts),
        hazards=tuple(hazards),
        file_bytes=verdict.file_bytes,
    )


def with_metadata(by_files: Verification, by_metadata: Verification) -> Verification:
    """Returns the verdict of the files with what metadata said. A commit that metadata refutes stays RED, also if the same
    rows are visible now: what it changed harms later."""
    both = replace(
        by_files,
        facts=by_metadata.facts,
        hazards=by_metadata.hazards,
        file_bytes=by_metadata.file_bytes,
    )
    if not by_metadata.facts:
        return both
    return replace(both, status=VerificationStatus.RED, detail=f"{by_metadata.detail}; {by_files.detail}")
