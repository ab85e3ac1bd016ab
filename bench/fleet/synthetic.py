"""A fleet of synthetic tables: partitions with drawn file sizes, writers and deletes.

Documented choices, none of them fitted to a result. A third of the tables has no partitions; the others have a
log-normal number (median 20). Each table has its own median file size (log-normal around 16 MB) and number of files per
partition (log-normal, median 8), so that whole tables differ as they do in practice; files of a partition are
log-normal around the median. Of the tables 20 % take row-level changes: their newest partition is changed every few
minutes (log-normal, median 5) and has position deletes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import exp, log

from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.health.thresholds import size_limits
from iceberg_maint.core.policy.data import Policy

MIB = 1024**2
NOW_MS = 1_700_000_000_000
TARGETS = (128 * MIB, 256 * MIB, 512 * MIB)
POLICY = Policy()
DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class SyntheticPartition:
    """A partition: its health, and the mean seconds between changes that delete rows, None without such changes."""

    table: int
    name: str
    target_bytes: int
    health: PartitionHealth
    change_seconds: float | None
    waited_days: float


def make_fleet(tables: int, seed: int) -> list[SyntheticPartition]:
    """Returns the partitions of all tables."""
    draw = random.Random(seed)
    partitions = []
    for table in range(tables):
        target = draw.choice(TARGETS)
        count = 1 if draw.random() < 1 / 3 else min(400, max(1, round(draw.lognormvariate(log(20), 1.0))))
        files_median = draw.lognormvariate(log(8), 1.0) * (8 if count == 1 else 1)
        size_median = draw.lognormvariate(log(16 * MIB), 1.2)
        changes = draw.lognormvariate(log(300), 1.0) if draw.random() < 0.2 else None
        waited = draw.expovariate(1 / 7)
        for number in range(count):
            hot = number == count - 1 and changes is not None
            sizes = [
                int(min(1.5 * target, max(4096, draw.lognormvariate(log(size_median), 1.0))))
                for _ in range(min(5000, max(1, round(draw.lognormvariate(log(files_median), 0.7)))))
            ]
            quiet = draw.expovariate(1 / changes) if hot and changes else draw.uniform(1, 30) * DAY_SECONDS
            partitions.append(
                SyntheticPartition(
                    table,
                    str(number),
                    target,
                    _health(sizes, target, quiet, draw.randint(1, 20) if hot else 0),
                    changes if hot else None,
                    waited,
                )
            )
    return partitions


def _health(sizes: list[int], target: int, quiet_seconds: float, deletes: int) -> PartitionHealth:
    small = [s for s in sizes if s < size_limits(POLICY.rewrite_data_files, target).small_below_bytes]
    return PartitionHealth(
        data_files=len(sizes),
        data_bytes=sum(sizes),
        records=sum(sizes) // 100,
        small_files=len(small),
        small_bytes=sum(small),
        position_delete_files=deletes,
        position_delete_records=deletes * 10,
        last_change_ms=NOW_MS - int(quiet_seconds * 1000),
    )


def is_lost(change_seconds: float | None, batch_seconds: float) -> float:
    """The true probability that a change arrives during a batch."""
    return 0.0 if change_seconds is None else 1 - exp(-batch_seconds / change_seconds)
