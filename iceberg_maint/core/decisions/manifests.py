"""Manifests: when a table's manifests are due to be regrouped by partition, and which of them.

Planning a query opens every manifest that may hold a file of its partitions. Manifests can only be
written anew together when they are of one spec and hold the same kind of files, so these are judged
and planned class by class.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from iceberg_maint.core.model.column_bounds import range_of
from iceberg_maint.core.model.partition_key import PartitionSpec
from iceberg_maint.core.model.reasons import Check, Finding, Reason, Severity
from iceberg_maint.core.model.table_state import Manifest, TableState
from iceberg_maint.core.policy.housekeeping import RewriteManifestsPolicy

_TARGET_PROPERTY = "commit.manifest.target-size-bytes"
_DEFAULT_TARGET_BYTES = 8 << 20
"""Iceberg's `TableProperties.MANIFEST_TARGET_SIZE_BYTES_DEFAULT`."""
_FULL_SHARE = 0.75
"""A manifest of at least this share of the target is left as it is unless its class is scattered."""


@dataclass(frozen=True, slots=True)
class DueManifests:
    """Manifests of one spec and kind to be regrouped (paths, in the manifest list's order), and why."""

    spec_id: int
    is_deletes: bool
    paths: tuple[str, ...]
    findings: tuple[Finding, ...] = ()


def target_manifest_bytes(properties: Mapping[str, str]) -> int:
    """The size that Iceberg closes a manifest at; a property that is no number counts as not set."""
    try:
        return max(1, int(properties[_TARGET_PROPERTY]))
    except (KeyError, ValueError):
        return _DEFAULT_TARGET_BYTES


def due_manifests(
    state: TableState, policy: RewriteManifestsPolicy, *, force: bool = False
) -> tuple[DueManifests, ...]:
    """The classes that are due; `force` takes every manifest of every class that has several."""
    classes: dict[tuple[bool, int], list[Manifest]] = defaultdict(list)
    for manifest in state.manifests:
        classes[manifest.is_deletes, manifest.spec_id].append(manifest)
    target_bytes = target_manifest_bytes(state.properties)
    due = []
    for (is_deletes, spec_id), members in sorted(classes.items(), key=lambda each: each[0]):
        taken: Sequence[Manifest] = members if len(members) > 1 else ()
        found: tuple[Finding, ...] = ()
        if not force:
            taken, found = _judged(members, state.specs.get(spec_id), policy, target_bytes)
        if taken:
            due.append(DueManifests(spec_id, is_deletes, tuple(m.path for m in taken), found))
    return tuple(due)


def manifest_findings(state: TableState, policy: RewriteManifestsPolicy) -> tuple[Finding, ...]:
    """What is beyond its threshold, of all classes."""
    return tuple(f for due in due_manifests(state, policy) for f in due.findings)


def partition_spread(manifests: Sequence[Manifest], spec: PartitionSpec) -> float | None:
    """How many of the manifests may hold files of one value of the leading partition field, on
    average over the values at which their ranges begin. None where the lists do not say or nothing
    can be compared."""
    place = next((n for n, f in enumerate(spec.fields) if not f.is_void), None)
    if place is None or any(len(m.bounds) <= place for m in manifests):
        return None
    kind = spec.fields[place].result_type
    ranges = [r for m in manifests if (r := range_of(kind, *m.bounds[place])) is not None]
    if not ranges:
        return None
    lows, highs = sorted(low for low, _ in ranges), sorted(high for _, high in ranges)
    covering = (bisect_right(lows, at) - bisect_left(highs, at) for at in lows)
    return sum(covering) / len(lows)


def clusters_of(manifests: Sequence[Manifest], target_bytes: int) -> int:
    """How many manifests of the target size their entries fill."""
    return max(1, -(-sum(m.length_bytes for m in manifests) // target_bytes))


def _judged(
    members: Sequence[Manifest],
    spec: PartitionSpec | None,
    policy: RewriteManifestsPolicy,
    target_bytes: int,
) -> tuple[Sequence[Manifest], tuple[Finding, ...]]:
    """What to take of one class. Nothing is due that would leave more than half as many."""
    small = [m for m in members if m.length_bytes < _FULL_SHARE * target_bytes]
    scattered = tuple(_scattered(members, spec, policy))
    if scattered and len(members) >= 2 * clusters_of(members, target_bytes):
        return members, scattered
    found = tuple(_too_many(small, policy, target_bytes))
    if found and len(small) >= 2 * clusters_of(small, target_bytes):
        return small, found
    return (), ()


def _scattered(
    members: Sequence[Manifest], spec: PartitionSpec | None, policy: RewriteManifestsPolicy
) -> Iterator[Finding]:
    if spec is None or len(members) < policy.min_manifests or policy.max_partition_spread is None:
        return
    spread = partition_spread(members, spec)
    if spread is not None and spread > policy.max_partition_spread:
        key = "max_partition_spread"
        yield _finding("manifest_partition_spread", spread, policy.max_partition_spread, key)


def _too_many(
    small: Sequence[Manifest], policy: RewriteManifestsPolicy, target_bytes: int
) -> Iterator[Finding]:
    if len(small) > policy.max_manifests:
        yield _finding("manifests", len(small), policy.max_manifests, "max_manifests")
    if len(small) < policy.min_manifests:
        return
    mean_bytes = sum(m.length_bytes for m in small) / len(small)
    least_bytes = policy.small_manifest_ratio * target_bytes
    if mean_bytes < least_bytes:
        yield _finding("mean_manifest_bytes", mean_bytes, least_bytes, "small_manifest_ratio")


def _finding(metric: str, value: float, threshold: float, key: str) -> Finding:
    return Finding(
        Check.MANIFESTS,
        Severity.ERROR,
        Reason.MANIFESTS,
        metric,
        float(value),
        float(threshold),
        f"rewrite_manifests.{key}",
    )
