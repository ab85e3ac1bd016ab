"""A metadata reader for the tries of one commit: a file that was read is not read again.

Manifest lists and manifests never change. What another writer has committed since the last try is in new files.
"""

from __future__ import annotations

import marshal
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from iceberg_maint.core.commits.change import LiveEntry, MetadataReader
from iceberg_maint.core.model.table_state import FileKind, Manifest, ManifestEntry

_MAX_ENTRIES = 200_000
"""The number of entries that stay in memory, about 100 MB. Further manifests are read at each try."""


def remembering(reader: MetadataReader) -> MetadataReader:
    """Returns a reader that reads each manifest list and each manifest once. Whole live entries are read each time."""
    lists: dict[str, Sequence[Manifest]] = {}
    manifests: dict[tuple[str, int, int], tuple[ManifestEntry, ...]] = {}
    entries = 0

    def manifest_list(location: str) -> Sequence[Manifest]:
        if location not in lists:
            lists[location] = reader.manifest_list(location)
        return lists[location]

    def manifest(path: str, sequence_number: int, snapshot_id: int) -> Iterable[ManifestEntry]:
        nonlocal entries
        key = (path, sequence_number, snapshot_id)
        if key in manifests:
            return manifests[key]
        content = tuple(reader.manifest(*key))
        if entries + len(content) <= _MAX_ENTRIES:
            manifests[key] = content
            entries += len(content)
        return content

    return MetadataReader(manifest_list, manifest, reader.live_entries)


Partition = tuple[object, ...]

_DIGEST_BYTES = 32
_MODULUS = 1 << 8 * _DIGEST_BYTES
_ROW_IDS_SINCE = 3
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
        if entry.first_row_id is None and format_version >= _ROW_IDS_SINCE and entry.kind is FileKind.DATA:
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
