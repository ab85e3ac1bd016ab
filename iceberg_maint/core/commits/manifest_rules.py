"""Rewriting manifests: where to cut a table's partitions into manifests, and the rules of the commit.

No live entry may change: the files, the sequence numbers that decide which deletes apply to them, their
row ids, and the snapshots that added them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

from iceberg_maint.core.commits.change import Rule, TableVersion, Violation
from iceberg_maint.core.commits.entry_digest import EntriesDigest, Partition
from iceberg_maint.core.commits.gate_rules import changes_only
from iceberg_maint.core.model.table_state import Manifest
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import RewriteManifests

_OTHER_ENTRIES = frozenset({Rule.TABLE_UUID, Rule.FORMAT_VERSION, Rule.MANIFESTS})
"""If one of these is stale, the commit read other entries than the plan: those of another table, entries that
an upgrade gave row ids, or those of the manifests that are left."""


@dataclass(frozen=True, slots=True)
class Regrouping:
    """The change of a commit that rewrites manifests: the versions before and after it, and digests of
    the live entries of the planned manifests and of those it adds. Entries that had no row ids before
    count without them (see `core.commits.entry_digest`)."""

    base: TableVersion
    new: TableVersion
    before: EntriesDigest
    after: EntriesDigest


def cuts(partitions: Mapping[Partition, int], clusters: int) -> tuple[Partition, ...]:
    """Returns the first partition of each run except the first run. The partitions are cut into at most
    `clusters` runs with about equal numbers of files. `partitions` maps each partition to its number of
    files. NULL comes first, as in Iceberg's order."""
    counts = sorted(partitions.items(), key=lambda each: [(v is not None, v) for v in each[0]])
    total = sum(partitions.values())
    share = total / clusters
    first_partitions: list[Partition] = []
    for (partition, count), cumulated in zip(counts, accumulate(c for _, c in counts), strict=True):
        if int((cumulated - count) / share) > len(first_partitions) and cumulated - count < total:
            first_partitions.append(partition)
    return tuple(first_partitions)


def check_regrouping(batch: Batch, work: RewriteManifests, change: Regrouping) -> tuple[Violation, ...]:
    """Returns every rule the commit would break; () if it may be committed."""
    return (*_on_the_planned_table(batch, change), *_manifests(work, change), *_entries(change))


def _on_the_planned_table(batch: Batch, change: Regrouping) -> Iterator[Violation]:
    base = change.base
    if base.table_uuid != batch.table_uuid:
        yield Violation(
            Rule.TABLE_UUID, f"the table is {base.table_uuid}, the plan was for {batch.table_uuid}"
        )
    if base.format_version != batch.format_version:
        yield Violation(
            Rule.FORMAT_VERSION, f"format version is {base.format_version}, was {batch.format_version}"
        )
    yield from changes_only(base, change.new, "manifests")


def _manifests(work: RewriteManifests, change: Regrouping) -> Iterator[Violation]:
    old = {m.path: m for m in change.base.manifests}
    now = {m.path: m for m in change.new.manifests}
    planned = frozenset(work.manifests)
    if missing := planned - old.keys():
        yield Violation(Rule.MANIFESTS, f"{min(missing)} is no longer a manifest of the table", raced=True)
        return
    replaced = old.keys() - now.keys()
    if unplanned := replaced - planned:
        yield Violation(Rule.MANIFESTS, f"would replace {min(unplanned)}, which was not planned")
    if unreplaced := planned - replaced:
        yield Violation(Rule.MANIFESTS, f"would not replace {min(unreplaced)}")
    for path in old.keys() & now.keys():
        if old[path] != now[path]:
            yield Violation(Rule.MANIFESTS, f"{path} is listed with other facts than before")
    classes = {_class(old[path]) for path in planned}
    for path in now.keys() - old.keys():
        if _class(now[path]) not in classes:
            yield Violation(Rule.MANIFESTS, f"{path} has another spec or kind than the manifest it replaces")


def _class(manifest: Manifest) -> tuple[int, bool]:
    return manifest.spec_id, manifest.is_deletes


def _entries(change: Regrouping) -> Iterator[Violation]:
    if change.before != change.after:
        was, is_ = (f"{d.entries} of {d.records} rows" for d in (change.before, change.after))
        yield Violation(
            Rule.ENTRIES,
            f"the live entries would change: {was} before, {is_} after",
            explained_by=_OTHER_ENTRIES,
        )
