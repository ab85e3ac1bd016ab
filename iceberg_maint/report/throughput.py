"""Estimates the time for a backlog from the speed of earlier batches."""

from __future__ import annotations

from collections.abc import Iterable

from iceberg_maint.core.outcomes.record import Record

ESTIMATE_RECORDS = 50
"""Newest records whose speed an estimate uses."""


def bytes_per_second(records: Iterable[Record]) -> float | None:
    """Input bytes per second of the committed batches in these records that read data; None without any."""
    total_bytes, total_seconds = 0, 0.0
    for record in records:
        for batch in record.outcome.batches:
            # An expiry and a rewrite of manifests read no data: they say nothing about the speed.
            if batch.snapshot_after is not None and batch.seconds > 0 and batch.input_bytes:
                total_bytes += batch.input_bytes
                total_seconds += batch.seconds
    return total_bytes / total_seconds if total_seconds else None


def estimate_seconds(backlog_bytes: int, records: Iterable[Record]) -> float | None:
    """Seconds for the backlog at the speed of these records; 0 without a backlog, None if no batch that reads data
    has been committed yet.
    """
    if not backlog_bytes:
        return 0.0
    speed = bytes_per_second(records)
    return None if speed is None else round(backlog_bytes / speed, 1)
