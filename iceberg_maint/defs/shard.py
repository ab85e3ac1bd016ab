"""Shards. Each of several code locations loads one shard of the tables."""

from __future__ import annotations

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.translator import digest
from iceberg_maint.errors import ConfigurationError

SHARD_VARIABLE = "ICEBERG_MAINT_SHARD"


def in_shard(table: TableId, index: int, count: int) -> bool:
    """Whether shard `index` contains the table. `index` is from 0 to `count` - 1. Only the table's name decides."""
    return int(digest(str(table))[:12], 16) % count == index


def parse_shard(text: str) -> tuple[int, int]:
    """Parses `i/n` to (index, count). Raises ConfigurationError ICM-100 if `text` is no shard."""
    index, _, count = text.partition("/")
    if index.isdecimal() and count.isdecimal() and int(index) < int(count):
        return int(index), int(count)
    raise ConfigurationError(
        "ICM-100",
        f"{SHARD_VARIABLE} is '{text}'. It must be i/n with 0 <= i < n.",
        "set it to a value such as 0/4.",
    )
