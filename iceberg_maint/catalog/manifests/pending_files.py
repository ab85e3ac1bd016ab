"""Reads manifests that no snapshot has: a writer keeps them for a commit that it has not made yet."""

from __future__ import annotations

from collections.abc import Sequence

from iceberg_maint.catalog.manifests.avro import read_columns, read_metadata
from iceberg_maint.catalog.manifests.avro_values import AvroError
from iceberg_maint.catalog.manifests.reader import PATH, STATUS
from iceberg_maint.core.model.table_state import EntryStatus
from iceberg_maint.errors import UnreadableTableError

_VERSIONS = frozenset({b"1", b"2", b"3"})
_MANIFEST_KEYS = frozenset({"schema", "partition-spec"})
_CONTENTS = frozenset({b"data", b"deletes"})


def pending_files(location: str, data: bytes, *, certain: bool) -> Sequence[str] | None:
    """Returns the paths of the live files that a manifest names, data and delete files alike; see
    `ports.storage.Reachability.pending`."""
    try:
        metadata = read_metadata(data)
        if not certain and not metadata.keys() & _MANIFEST_KEYS:
            return None
        _check(metadata)
        statuses, paths = read_columns(data, (STATUS, PATH))
        if not paths or None in paths or None in statuses:
            raise AvroError("it names no file, but every such manifest names at least one")
    except AvroError as error:
        raise UnreadableTableError(
            "ICM-101",
            f"pending manifest {location} of a Flink job cannot be read: {error}. The files that it names "
            "cannot be distinguished from orphans, so no file was moved.",
            "restore the manifest; delete it if its job will never be restored from a checkpoint or savepoint "
            "that has it.",
        ) from error
    return [path for path, status in zip(paths, statuses, strict=True) if status != EntryStatus.DELETED]


def _check(metadata: dict[str, bytes]) -> None:
    if missing := _MANIFEST_KEYS - metadata.keys():
        raise AvroError(f"its header has no '{min(missing)}', which every manifest must have")
    version, content = metadata.get("format-version", b"1"), metadata.get("content", b"data")
    if version not in _VERSIONS:
        raise AvroError(f"its format version is {version!r}; it must be 1, 2 or 3")
    if content not in _CONTENTS:
        raise AvroError(f"its content is {content!r}; it must be data or deletes")
