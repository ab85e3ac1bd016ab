"""Manifests: when a table's manifests are due to be regrouped by partition, and which of them."""

from __future__ import annotations

from iceberg_maint.core.housekeeping import RewriteManifestsPolicy
from iceberg_maint.core.reasons import Check, Finding, Reason, Severity
from iceberg_maint.core.state import TableState


def due_manifests(state: TableState, policy: RewriteManifestsPolicy) -> tuple[str, ...]:
    """Paths of the data manifests that a rewrite would regroup, in the manifest list's order."""
    found = [m.path for m in state.manifests if not m.is_deletes]
    return tuple(found) if len(found) > policy.max_manifests else ()


def manifest_findings(state: TableState, policy: RewriteManifestsPolicy) -> tuple[Finding, ...]:
    """What is beyond its threshold."""
    count = len(due_manifests(state, policy))
    if not count:
        return ()
    return (
        Finding(
            Check.MANIFESTS,
            Severity.ERROR,
            Reason.MANIFESTS,
            "manifests",
            float(count),
            float(policy.max_manifests),
            "rewrite_manifests.max_manifests",
        ),
    )
