"""A metadata reader for the tries of one commit: a file that was read is not read again.

Manifest lists and manifests never change. What another writer has committed since the last try is in new files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from iceberg_maint.core.commits.change import MetadataReader
from iceberg_maint.core.model.table_state import Manifest, ManifestEntry

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
