"""Paths that are longer than a store takes: Iceberg's paths contain the partition's values."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from iceberg_maint.core.model.ids import PartitionKey

_SIGNS = {
    # Hadoop's local file system has no errno for a folder.
    re.compile(
        r"File name too long|Mkdirs failed to create \S*[^/\s]{256}|maximum path component name limit"
    ): "a file system takes names of at most 255 bytes",
    re.compile(r"KeyTooLong|key is too long"): "S3 takes keys of at most 1,024 bytes",
}
"""Errors of the C library (ENAMETOOLONG), of Hadoop, HDFS and S3, with their limits."""
_SHORTEST = 255
_SHOWN = 100


def may_be_too_long(partition: PartitionKey) -> bool:
    """Whether some store may take no path with this partition. Such a partition shares no batch with others."""
    return len(partition) > _SHORTEST


def long_path(partitions: Collection[PartitionKey], causes: Iterable[tuple[str, str]]) -> str | None:
    """Returns which partition has a path that the store does not take, and its limit, from the (class name, message) of an
    error. None for any other error."""
    texts = [f"{name}: {text}" for name, text in causes]
    limit = next((rule for sign, rule in _SIGNS.items() if any(map(sign.search, texts))), None)
    if limit is None or not partitions:
        return None
    longest = max(partitions, key=len)
    shown = longest if len(longest) <= _SHOWN else f"{longest[:_SHOWN]}… ({len(longest):,} characters)"
    return f"the store does not take the path of a new file of partition {shown}: {limit}."
