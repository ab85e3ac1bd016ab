"""Rewriting manifests: where to cut a table's partitions into manifests, and the rules of the commit.

No live entry may change: the files, the sequence numbers that decide which deletes apply to them, their
row ids, and the snapshots that added them.
"""

from __future__ import annotations

import marshal
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

from iceberg_maint.core.commits.change import ROW_IDS_SINCE, LiveEntry, Rule, TableVersion, Violation
from iceberg_maint.core.commits.table_rules import changes_only
from iceberg_maint.core.model.table_state import FileKind, Manifest
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import RewriteManifests

Partition = tuple[object, ...]

_DIGEST_BYTES = 32
_MODULUS = 1 << 8 * _DIGEST_BYTES
_WITHOUT_REFERENCES = 2
"""The version of `marshal` in which equal values give equal bytes: later ones write references to objects."""


@dataclass(frozen=True, slots=True)
class EntriesDigest:
    """The digest of a multiset of live entries: the number of entries, the number of rows, and the sum of
    their BLAKE2b hashes modulo 2²⁵⁶. The order of the entries does not change it. A change to one field
    of one entry does."""

    entries: int
    records: int
    hashes: int


@dataclass(frozen=True, slots=True)
class PlannedEntries:
    """The live entries that a commit is to rewrite: their digest, their number per partition, and the
    hashes of the data files whose rows have no ids although the format version has row ids. These files
    get row ids with the table's first commit in format v3, whatever that commit does."""

    digest: EntriesDigest
    partitions: Mapping[Partition, int]
    without_row_ids: frozenset[bytes]


def planned_entries(entries: Iterable[LiveEntry], format_version: int) -> PlannedEntries:
    """Returns the digest that must be the same after the commit. `entries` is iterated once."""
    hash_of = _hasher()
    count = records = hashes = 0
    partitions: Counter[Partition] = Counter()
    without_row_ids: set[bytes] = set()
    for entry in entries:
        entry_hash = hash_of(entry)
        count, records, hashes = count + 1, records + entry.record_count, hashes + int.from_bytes(entry_hash)
        partitions[entry.partition] += 1
        if entry.first_row_id is None and format_version >= ROW_IDS_SINCE and entry.kind is FileKind.DATA:
            without_row_ids.add(entry_hash)
    digest = EntriesDigest(count, records, hashes % _MODULUS)
    return PlannedEntries(digest, partitions, frozenset(without_row_ids))


def digest_entries(
    entries: Iterable[LiveEntry], without_row_ids: Collection[bytes] = frozenset()
) -> EntriesDigest:
    """Returns the digest of these entries. Entries in `without_row_ids` count without the ids they have
    now."""
    hash_of = _hasher()
    count = records = hashes = 0
    for entry in entries:
        entry_hash = hash_of(entry)
        if without_row_ids and entry.first_row_id is not None:
            before = hash_of(entry._replace(first_row_id=None))
            entry_hash = before if before in without_row_ids else entry_hash
        count, records, hashes = count + 1, records + entry.record_count, hashes + int.from_bytes(entry_hash)
    return EntriesDigest(count, records, hashes % _MODULUS)


def _hasher() -> Callable[[LiveEntry], bytes]:
    from hashlib import blake2b  # loads OpenSSL

    def hash_of(entry: LiveEntry) -> bytes:
        # Texts and bytes are quoted and floats are bytes: no two entries have the same text.
        *facts, statistics = entry
        text = repr(facts).encode("utf-8", "surrogatepass")
        # Most of an entry are integers and bytes of its statistics, which `marshal` writes six times as fast.
        statistics_bytes = marshal.dumps(statistics, _WITHOUT_REFERENCES)
        return blake2b(text + b"\0" + statistics_bytes, digest_size=_DIGEST_BYTES).digest()

    return hash_of


_OTHER_ENTRIES = frozenset({Rule.TABLE_UUID, Rule.FORMAT_VERSION, Rule.MANIFESTS})
"""If one of these is stale, the commit read other entries than the plan: those of another table, entries that
an upgrade gave row ids, or those of the manifests that are left."""


@dataclass(frozen=True, slots=True)
class Regrouping:
    """The change of a commit that rewrites manifests: the versions before and after it, and digests of
    the live entries of the planned manifests and of those it adds. Entries that had no row ids before
    count without them (see `digest_entries`)."""

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
