"""The snapshot from which a Structured Streaming query goes on, read from its checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress


def committed_batch(names: Iterable[str]) -> int | None:
    """Returns the newest batch in the names of the checkpoint's folder `commits`. Newer files of its folder `offsets` are of
    batches that a restarted query repeats, from the end of this one."""
    return max((int(name) for name in names if name.isascii() and name.isdigit()), default=None)


def snapshots_of(offsets: str) -> tuple[int, ...]:
    """Returns the snapshots that the lines of an offset file name, one for each Iceberg source of the query
    (`org.apache.iceberg.spark.source.StreamingOffset`)."""
    found = []
    for line in offsets.splitlines():
        with suppress(ValueError):
            offset = json.loads(line)
            if isinstance(offset, dict) and isinstance(offset.get("snapshot_id"), int):
                found.append(offset["snapshot_id"])
    return tuple(found)
