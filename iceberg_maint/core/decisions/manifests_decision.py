"""Manifests: when a table's manifests are due to be regrouped by partition, and which of them.

Planning a query opens every manifest that may list a file of its partitions. Manifests can be rewritten
together only if they have the same spec and list the same kind of files. Decision and plan therefore
treat each such class on its own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from iceberg_maint.core.model.columns import range_of
from iceberg_maint.core.model.partition_key import PartitionSpec
from iceberg_maint.core.model.reasons import Check, Finding, Reason, Severity
from iceberg_maint.core.model.table_state import Manifest, TableState
from iceberg_maint.core.policy.housekeeping import RewriteManifestsPolicy

_TARGET_PROPERTY = "commit.manifest.target-size-bytes"
_DEFAULT_TARGET_BYTES = 8 << 20
"""Iceberg's `TableProperties.MANIFEST_TARGET_SIZE_BYTES_DEFAULT`."""
EMPTY_MANIFESTS = "manifests_without_live_files"
_SMALL_SHARE = 0.25
"""Manifests smaller than this share of the target size on average are due."""
_MAX_SPREAD = 10.0
"""Manifests are due if files of one value of the leading partition field may lie in more of them than this, on average."""
_FULL_SHARE = 0.75
"""A manifest of at least this share of the target size is not rewritten unless its class is scattered."""


@dataclass(frozen=True, slots=True)
class DueManifests:
    """Manifests of one spec and kind to regroup (paths, in the order of the manifest list), with the
    findings."""

    spec_id: int
    is_deletes: bool
    paths: tuple[str, ...]
    findings: tuple[Finding, ...] = ()


def target_manifest_bytes(properties: Mapping[str, str]) -> int:
    """Returns the size at which Iceberg closes a manifest. A property that is not a number counts as not
    set."""
    try:
        return max(1, int(properties[_TARGET_PROPERTY]))
    except (KeyError, ValueError):
        return _DEFAULT_TARGET_BYTES


def due_manifests(
    state: TableState, policy: RewriteManifestsPolicy, *, force: bool = False
) -> tuple[DueManifests, ...]:
    """Returns the classes that are due. Manifests without live files are taken if they are many: the writer's next commit
    drops a few. `force` takes every manifest of every class with more than one."""
    classes: dict[tuple[bool, int], list[Manifest]] = defaultdict(list)
    for manifest in state.manifests:
        classes[manifest.is_deletes, manifest.spec_id].append(manifest)
    target_bytes = target_manifest_bytes(state.properties)
    due = []
    for (is_deletes, spec_id), members in sorted(classes.items(), key=lambda each: each[0]):
        selected: Sequence[Manifest] = members if len(members) > 1 else ()
        class_findings: tuple[Finding, ...] = ()
        if not force:
            live = [m for m in members if _may_have_live_files(m)]
            selected, class_findings = _selected_with_findings(
                live, state.specs.get(spec_id), policy, target_bytes
            )
            if len(members) - len(live) > least_manifests(policy):
                empty = float(len(members) - len(live))
                taken = {m.path for m in selected}
                selected = [m for m in members if m.path in taken or not _may_have_live_files(m)]
                class_findings += (_finding(EMPTY_MANIFESTS, empty, least_manifests(policy)),)
        if selected:
            due.append(DueManifests(spec_id, is_deletes, tuple(m.path for m in selected), class_findings))
    return tuple(due)


def least_manifests(policy: RewriteManifestsPolicy) -> int:
    """Returns how many manifests of one class are worth a rewrite for their size or their spread."""
    return max(2, policy.max_manifests * 3 // 10)


def manifests_without_live_files(state: TableState) -> int:
    """Returns how many manifests list no live file. A commit that removes files leaves them, the next such commit drops
    them."""
    return sum(not _may_have_live_files(m) for m in state.manifests)


def _may_have_live_files(manifest: Manifest) -> bool:
    """Whether the manifest may have an entry of a live file. Iceberg's Java readers skip one without, others open it
    (PyIceberg's `plan_files`). The next commit that may remove files drops it from the list
    (`MergingSnapshotProducer`)."""
    return manifest.added_files != 0 or manifest.existing_files != 0


def manifest_findings(state: TableState, policy: RewriteManifestsPolicy) -> tuple[Finding, ...]:
    """Returns the findings of all classes."""
    return tuple(f for due in due_manifests(state, policy) for f in due.findings)


def partition_spread(manifests: Sequence[Manifest], spec: PartitionSpec) -> float | None:
    """Returns how many manifests may list files of one value of the leading partition field, on average
    over the values at which their ranges begin. None if the list has no bounds or no bounds can be
    compared."""
    place = next((n for n, f in enumerate(spec.fields) if not f.is_void), None)
    if place is None or any(len(m.bounds) <= place for m in manifests):
        return None
    kind = spec.fields[place].result_type
    ranges = [r for m in manifests if (r := range_of(kind, *m.bounds[place])) is not None]
    if not ranges:
        return None
    lows, highs = sorted(low for low, _ in ranges), sorted(high for _, high in ranges)
    covering = (bisect_right(lows, low) - bisect_left(highs, low) for low in lows)
    return sum(covering) / len(lows)


def clusters_of(manifests: Sequence[Manifest], target_bytes: int) -> int:
    """Returns how many manifests of the target size the entries fill."""
    return max(1, -(-sum(m.length_bytes for m in manifests) // target_bytes))


def _selected_with_findings(
    members: Sequence[Manifest],
    spec: PartitionSpec | None,
    policy: RewriteManifestsPolicy,
    target_bytes: int,
) -> tuple[Sequence[Manifest], tuple[Finding, ...]]:
    """Returns the manifests to regroup in one class, with the findings. A class is not due if more than
    half of its manifests would remain."""
    small = [m for m in members if m.length_bytes < _FULL_SHARE * target_bytes]
    scattered = tuple(_scattered(members, spec, policy))
    if scattered and len(members) >= 2 * clusters_of(members, target_bytes):
        return members, scattered
    findings = tuple(_too_many(small, policy, target_bytes))
    if findings and len(small) >= 2 * clusters_of(small, target_bytes):
        return small, findings
    return (), ()


def _scattered(
    members: Sequence[Manifest], spec: PartitionSpec | None, policy: RewriteManifestsPolicy
) -> Iterator[Finding]:
    if spec is None or len(members) < least_manifests(policy):
        return
    spread = partition_spread(members, spec)
    if spread is not None and spread > _MAX_SPREAD:
        yield _finding("manifest_partition_spread", spread, _MAX_SPREAD)


def _too_many(
    small: Sequence[Manifest], policy: RewriteManifestsPolicy, target_bytes: int
) -> Iterator[Finding]:
    if len(small) > policy.max_manifests:
        yield _finding("manifests", len(small), policy.max_manifests)
    if len(small) < least_manifests(policy):
        return
    mean_bytes = sum(m.length_bytes for m in small) / len(small)
    least_bytes = _SMALL_SHARE * target_bytes
    if mean_bytes < least_bytes:
        yield _finding("mean_manifest_bytes", mean_bytes, least_bytes)


def _finding(metric: str, value: float, threshold: float) -> Finding:
    return Finding(
        Check.MANIFESTS,
        Severity.ERROR,
        Reason.MANIFESTS,
        metric,
        float(value),
        float(threshold),
        "rewrite_manifests.max_manifests",
    )
