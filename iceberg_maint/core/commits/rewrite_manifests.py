"""Regrouping manifests: where to cut a table's partitions, and the rules of the commit.

What must not change is every live entry: the files, the sequence numbers that say which deletes apply
to them, their row ids, and the snapshots that added them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

from iceberg_maint.core.commits.change import TableVersion
from iceberg_maint.core.commits.entry_digest import EntriesDigest, Partition
from iceberg_maint.core.commits.gate import Rule, Violation, changes_only
from iceberg_maint.core.model.table_state import Manifest
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import RewriteManifests


@dataclass(frozen=True, slots=True)
class Regrouping:
    """What a commit that rewrites manifests is about to do: the versions before and after it, the
    live entries of the planned manifests, and those of the manifests it adds, both as digests; of
    what had no row ids before, that is without them (see `core.commits.entry_digest`)."""

    base: TableVersion
    new: TableVersion
    before: EntriesDigest
    after: EntriesDigest


def cuts(partitions: Mapping[Partition, int], clusters: int) -> tuple[Partition, ...]:
    """The first partitions of so many runs of about equal numbers of files (at most), but the first
    run; `partitions` tells the files of each. NULL comes first, as in Iceberg's order."""
    counts = sorted(partitions.items(), key=lambda each: [(v is not None, v) for v in each[0]])
    total = sum(partitions.values())
    share = total / clusters
    found: list[Partition] = []
    for (partition, count), until in zip(counts, accumulate(c for _, c in counts), strict=True):
        if int((until - count) / share) > len(found) and until - count < total:
            found.append(partition)
    return tuple(found)


def check_regrouping(batch: Batch, work: RewriteManifests, change: Regrouping) -> tuple[Violation, ...]:
    """Every rule the commit would break; () lets it pass."""
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
    if gone := planned - old.keys():
        yield Violation(Rule.MANIFESTS, f"{min(gone)} is no manifest of the table any more", raced=True)
        return
    replaced = old.keys() - now.keys()
    if unplanned := replaced - planned:
        yield Violation(Rule.MANIFESTS, f"would replace {min(unplanned)}, which was not planned")
    if kept := planned - replaced:
        yield Violation(Rule.MANIFESTS, f"would not replace {min(kept)}")
    for path in old.keys() & now.keys():
        if old[path] != now[path]:
            yield Violation(Rule.MANIFESTS, f"{path} is listed with other facts than before")
    classes = {_class(old[path]) for path in planned}
    for path in now.keys() - old.keys():
        if _class(now[path]) not in classes:
            yield Violation(Rule.MANIFESTS, f"{path} is of another spec or kind than what it replaces")


def _class(manifest: Manifest) -> tuple[int, bool]:
    return manifest.spec_id, manifest.is_deletes


def _entries(change: Regrouping) -> Iterator[Violation]:
    if change.before != change.after:
        was, is_ = (f"{d.entries} of {d.records} rows" for d in (change.before, change.after))
        yield Violation(Rule.ENTRIES, f"the live entries would not stay what they are: {was}, then {is_}")
