"""Which snapshots and refs an expiry has to leave, by the table's metadata file and the policy alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from iceberg_maint.core.policy.housekeeping import ExpireSnapshotsPolicy
from iceberg_maint.core.policy.runs import WriteAuditPublishPolicy

Metadata = Mapping[str, Any]
_WAIT_MS = 1000 * (WriteAuditPublishPolicy().max_age_seconds or 0)


def retained(
    metadata: Metadata, policy: ExpireSnapshotsPolicy, now_ms: int, staged: Collection[int]
) -> tuple[set[int], set[str]]:
    """Snapshots and refs that stay. `staged` are those that were never published. Their publisher needs the snapshot
    that they were staged on, also after a rollback, and walks to it from the head. A branch that can be fast-forwarded
    keeps its way to main's head for three days."""
    snapshots = {s["snapshot-id"]: s for s in metadata["snapshots"]}
    refs: dict[str, Metadata] = {
        name: ref
        for name, ref in metadata["refs"].items()
        if name == "main" or not _is_past(ref, snapshots, now_ms)
    }
    chains = {n: _chain(r["snapshot-id"], snapshots) for n, r in refs.items() if r["type"] == "branch"}
    bases = {one: snapshots[one].get("parent-snapshot-id") for one in staged}
    for chain in chains.values():
        if refs["main"]["snapshot-id"] in chain[1:]:
            first = chain[chain.index(refs["main"]["snapshot-id"]) - 1]
            if snapshots[first]["timestamp-ms"] >= now_ms - _WAIT_MS:
                bases[first] = first
    kept = {r["snapshot-id"] for r in refs.values()} | (set(bases.values()) & snapshots.keys())
    for name, chain in chains.items():
        least = refs[name].get("min-snapshots-to-keep", policy.min_snapshots_to_keep)
        age_ms = refs[name].get("max-snapshot-age-ms", policy.max_snapshot_age_seconds * 1000)
        young = sum(snapshots[s]["timestamp-ms"] >= now_ms - age_ms for s in chain)
        kept.update(chain[: max(least, young, 1)])
        for base in bases.values():
            if base in chain:
                kept.update(chain[: chain.index(base) + 1])
    reachable = {s for chain in chains.values() for s in chain} | kept
    policy_age_ms = policy.max_snapshot_age_seconds * 1000
    young_ones = {i for i, s in snapshots.items() if s["timestamp-ms"] >= now_ms - policy_age_ms}
    return kept | (young_ones - reachable) | set(staged), set(refs)


def _is_past(ref: Metadata, snapshots: Mapping[int, Metadata], now_ms: int) -> bool:
    age_ms = ref.get("max-ref-age-ms")
    return age_ms is not None and now_ms > snapshots[ref["snapshot-id"]]["timestamp-ms"] + age_ms


def _chain(head: int, snapshots: Mapping[int, Metadata]) -> list[int]:
    """A branch's snapshots, newest first, as far back as there are any."""
    found = []
    at: int | None = head
    while at in snapshots:
        found.append(at)
        at = snapshots[at].get("parent-snapshot-id")
    return found
