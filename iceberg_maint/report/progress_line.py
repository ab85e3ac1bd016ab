"""One line about the progress of a running operation, for a progress bar and for a log."""

from __future__ import annotations

from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.ports.engine import WorkProgress
from iceberg_maint.report.formatting import counted, duration, number, size


def progress_line(step: str, batch: Batch | None, seconds: float, work: WorkProgress | None) -> str:
    """The step, how far it is, its rate and, if it can be estimated, the remaining time."""
    facts = [work.step if work is not None and work.step else step]
    if work is not None:
        seconds = work.seconds or seconds
        if work.groups > 1:
            facts.append(f"group {number(min(work.groups, work.groups_done + 1))} of {number(work.groups)}")
        facts += _figures(batch, work, seconds)
    facts.append(duration(seconds))
    return ", ".join(facts)


def _figures(batch: Batch | None, work: WorkProgress, seconds: float) -> list[str]:
    facts = []
    total = batch.input_bytes if batch is not None else 0
    if work.bytes_read:
        read = (
            f"{size(work.bytes_read)} of {size(total)}" if work.bytes_read < total else size(work.bytes_read)
        )
        rate = f" ({size(work.bytes_read / seconds)}/s)" if seconds >= 1 else ""
        facts.append(f"{counted(work.rows_read, 'row')} and {read} read{rate}")
    elif work.rows_read:
        facts.append(f"{counted(work.rows_read, 'row')} read")
    if work.rows_written:
        facts.append(f"{counted(work.rows_written, 'row')} and {size(work.bytes_written)} written")
    remaining = remaining_seconds(total, work, seconds)
    if remaining is not None:
        facts.append(f"about {duration(remaining)} left")
    return facts


def remaining_seconds(total_bytes: int, work: WorkProgress, seconds: float) -> float | None:
    """The seconds left at the rate so far, by bytes read or by finished groups, the less advanced. None before
    either says anything."""
    shares = []
    if total_bytes and work.bytes_read:
        shares.append(min(1.0, work.bytes_read / total_bytes))
    if work.groups > 1:
        shares.append(work.groups_done / work.groups)
    share = min(shares, default=0.0) or max(shares, default=0.0)
    if not 0 < share < 1 or seconds < 1:
        return None
    return seconds * (1 - share) / share
