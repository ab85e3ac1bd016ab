"""Regrouping manifests: where to cut a table's partitions, and the rules of the commit.

What must not change is every live entry: the files, the sequence numbers that say which deletes apply
to them, their row ids, and the snapshots that added them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from iceberg_maint.core.change import LiveEntry, TableVersion
from iceberg_maint.core.gate import Rule, Violation, changes_only
from iceberg_maint.core.plan import Batch
from iceberg_maint.core.state import Manifest

Partition = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Regrouping:
    """What a commit that rewrites manifests is about to do: the versions before and after it, the
    live entries of the planned manifests, and those of the manifests it adds."""

    base: TableVersion
    new: TableVersion
    before: Sequence[LiveEntry]
    after: Sequence[LiveEntry]


def cuts(partitions: Sequence[Partition], clusters: int) -> tuple[Partition, ...]:
    """The first partitions of so many runs of about equal numbers of files (at most), but the first
    run; `partitions` has one per file. NULL comes first, as in Iceberg's order."""
    counts = sorted(Counter(partitions).items(), key=lambda each: [(v is not None, v) for v in each[0]])
    total, share = len(partitions), len(partitions) / clusters
    found: list[Partition] = []
    for (partition, count), until in zip(counts, accumulate(c for _, c in counts), strict=True):
        if int((until - count) / share) > len(found) and until - count < total:
            found.append(partition)
    return tuple(found)


def check_regrouping(batch: Batch, change: Regrouping) -> tuple[Violation, ...]:
    """Every rule the commit would break; () lets it pass."""
    return (*_on_the_planned_table(batch, change), *_manifests(batch, change), *_entries(change))


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


def _manifests(batch: Batch, change: Regrouping) -> Iterator[Violation]:
    old = {m.path: m for m in change.base.manifests}
    now = {m.path: m for m in change.new.manifests}
    planned = frozenset(batch.manifests)
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
    # Files without row ids get some with the first commit in format v3, whatever it does.
    named = {(e.path, e.content_offset) for e in change.before if e.first_row_id is None}
    before, after = Counter(change.before), Counter(_unnamed(change.after, named))
    if lost := next(iter(before - after), None):
        yield Violation(Rule.ENTRIES, f"the entry of {lost.path} would be lost or changed: was {lost}")
    if new := next(iter(after - before), None):
        yield Violation(Rule.ENTRIES, f"an entry of {new.path} would be added or changed: {new}")


def _unnamed(entries: Sequence[LiveEntry], named: set[tuple[str, int | None]]) -> Iterator[LiveEntry]:
    if not named:
        yield from entries
        return
    for entry in entries:
        is_new = (entry.path, entry.content_offset) in named
        yield entry._replace(first_row_id=None) if is_new else entry
