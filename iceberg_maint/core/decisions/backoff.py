"""Back-off and quarantine as values: the partition's history before and after an attempt."""

from __future__ import annotations

from dataclasses import replace

from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.policy.data import RetryPolicy


def write_ahead(past: PartitionHistory, policy: RetryPolicy, now_ms: int) -> PartitionHistory:
    """Written before an attempt starts, so that a crash that reports nothing still backs off.

    The first crash may be resumed at once; the wait starts with the second in a row.
    """
    crashes = past.crashes + 1
    wait_ms = _wait_ms(policy.crash_backoff_seconds, crashes - 1, policy) if crashes > 1 else 0
    return replace(
        past,
        crashes=crashes,
        not_before_ms=now_ms + wait_ms,
        quarantined=past.quarantined or crashes >= policy.quarantine_after_crashes,
        reason="an attempt has started and not reported back",
    )


def succeeded() -> PartitionHistory:
    """After an effective attempt: a clean slate."""
    return PartitionHistory()


def undone(past: PartitionHistory) -> PartitionHistory:
    """After an attempt that was terminated on purpose, or that never ran: as it was before.

    `past` is the history before `write_ahead`.
    """
    return past


def failed(past: PartitionHistory, policy: RetryPolicy, now_ms: int, reason: str) -> PartitionHistory:
    """After an attempt that reported failure or gained nothing.

    `past` is the history before `write_ahead`: the attempt did not crash.
    """
    ineffective = past.ineffective + 1
    return PartitionHistory(
        ineffective=ineffective,
        crashes=past.crashes,
        not_before_ms=now_ms + _wait_ms(policy.backoff_seconds, ineffective, policy),
        quarantined=past.quarantined or ineffective >= policy.quarantine_after,
        reason=reason,
    )


def refused(past: PartitionHistory, policy: RetryPolicy, now_ms: int, reason: str) -> PartitionHistory:
    """After an attempt that its surroundings forbade: it waits, and counts as no failure. `past` is the
    history before `write_ahead`."""
    return replace(past, not_before_ms=now_ms + policy.backoff_seconds * 1000, reason=reason)


def held(past: PartitionHistory, reason: str) -> PartitionHistory:
    """After what only a person can put right: nothing more until it is released. `past` is the
    history before `write_ahead`."""
    return replace(past, quarantined=True, reason=reason)


def _wait_ms(base_seconds: int, count: int, policy: RetryPolicy) -> int:
    return int(min(policy.backoff_max_seconds, base_seconds * 2 ** min(count - 1, 30)) * 1000)
