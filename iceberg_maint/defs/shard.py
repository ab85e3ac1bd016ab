"""Shards: the share of the tables that one code location loads."""

from __future__ import annotations

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.translator import digest
from iceberg_maint.errors import ConfigurationError

SHARD_VARIABLE = "ICEBERG_MAINT_SHARD"


def in_shard(table: TableId, index: int, count: int) -> bool:
    """Whether the table belongs to code location `index` of `count` (from 0). Depends on its name only."""
    return int(digest(str(table))[:12], 16) % count == index


def parse_shard(text: str) -> tuple[int, int]:
    """`i/n` as (index, count). Raises ConfigurationError ICM-100."""
    index, _, count = text.partition("/")
    if index.isdecimal() and count.isdecimal() and int(index) < int(count):
        return int(index), int(count)
    raise ConfigurationError(
        "ICM-100",
        f"{SHARD_VARIABLE} is '{text}'. It must be i/n with 0 <= i < n.",
        "set it to, for example, 0/4.",
    )
