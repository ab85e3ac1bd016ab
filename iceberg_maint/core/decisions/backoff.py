"""Back-off and quarantine as values: the history of a partition before and after an attempt."""

from __future__ import annotations

from dataclasses import replace

from iceberg_maint.core.decisions.history import ENVIRONMENT_WAIT_MS, FAULTY_CRASHES, PartitionHistory
from iceberg_maint.core.model.reasons import LOST_RACES, Reason
from iceberg_maint.core.policy.data import RetryPolicy

NO_GAIN_REASONS = (Reason.NO_GAIN, Reason.FILE_TOO_LARGE, Reason.UNSUPPORTED_KEY, Reason.UNSUPPORTED_TYPE)
"""Why a plan has no work for a due partition."""
_NO_FAULT = LOST_RACES.union(NO_GAIN_REASONS)


def write_ahead(history: PartitionHistory, policy: RetryPolicy, now_ms: int) -> PartitionHistory:
    """Returns the history to store before an attempt starts, so that a crash without a report still backs
    off.

    The first crash may be resumed at once. The wait starts with the second crash in a row.
    """
    crashes = history.crashes + 1
    wait_ms = _wait_ms(policy.crash_backoff_seconds, crashes - 1, policy) if crashes > 1 else 0
    return replace(
        history,
        crashes=crashes,
        not_before_ms=now_ms + wait_ms,
        quarantined=history.quarantined or crashes >= policy.quarantine_after_crashes,
        reason="an attempt started and has not reported back",
        environment_failures=0,
    )


def succeeded() -> PartitionHistory:
    """Returns the history after an effective attempt: empty."""
    return PartitionHistory()


def undone(history: PartitionHistory) -> PartitionHistory:
    """Returns the history after an attempt that was terminated on purpose or never ran: unchanged.

    `history` is the history before `write_ahead`.
    """
    return history


def failed(history: PartitionHistory, policy: RetryPolicy, now_ms: int, reason: str) -> PartitionHistory:
    """Returns the history after an attempt that reported failure, gained nothing or lost to other writers.

    `history` is the history before `write_ahead`: the attempt did not crash. Lost races in a row lengthen the wait and
    never quarantine. A failure after them is the first one.
    """
    is_lost = reason in LOST_RACES
    ineffective = 1 if history.reason in LOST_RACES and not is_lost else history.ineffective + 1
    return PartitionHistory(
        ineffective=ineffective,
        crashes=history.crashes,
        not_before_ms=now_ms + _wait_ms(policy.backoff_seconds, ineffective, policy),
        quarantined=history.quarantined or (not is_lost and ineffective >= policy.quarantine_after),
        reason=reason,
    )


def environment_failed(
    history: PartitionHistory, policy: RetryPolicy, now_ms: int, reason: str
) -> PartitionHistory:
    """Returns the history after an attempt that the environment failed. It does not count against the partition. Only the
    automation waits, at most 40 minutes. `history` is the history before `write_ahead`."""
    failures = history.environment_failures + 1
    return replace(
        history,
        # Without its reason a count of lost races would count as failures.
        ineffective=0 if history.reason in LOST_RACES else history.ineffective,
        environment_failures=failures,
        not_before_ms=now_ms + _environment_wait_ms(failures, policy),
        reason=reason,
    )


def unreadable(history: PartitionHistory, policy: RetryPolicy, now_ms: int, reason: str) -> PartitionHistory:
    """Returns the history after the table's metadata could not be read: it waits longer each time, without end."""
    return replace(failed(history, policy, now_ms, reason), quarantined=False)


def failed_ms(history: PartitionHistory, policy: RetryPolicy) -> int:
    """Returns the time of the failure that the history waits after."""
    if history.environment_failures:
        wait_ms = _environment_wait_ms(history.environment_failures, policy)
    else:
        wait_ms = _wait_ms(policy.backoff_seconds, max(1, history.ineffective), policy)
    return (history.not_before_ms or 0) - wait_ms


def works_alone(history: PartitionHistory) -> bool:
    """Whether the next work on a partition shares no batch with other partitions: its last attempts failed. A file that
    cannot be read fails its whole batch, so the other partitions would fail with it until they are quarantined. Attempts
    that lost to other commits or gained nothing say nothing of its files."""
    is_faulty = history.ineffective > 0 and history.reason not in _NO_FAULT
    return is_faulty or history.crashes >= FAULTY_CRASHES


def quarantined_history(history: PartitionHistory, reason: str) -> PartitionHistory:
    """Returns the history after an outcome that only a person can resolve: the partition stays
    quarantined until it is released. `history` is the history before `write_ahead`."""
    return replace(history, quarantined=True, reason=reason)


def _environment_wait_ms(failures: int, policy: RetryPolicy) -> int:
    return min(ENVIRONMENT_WAIT_MS, _wait_ms(policy.backoff_seconds, failures, policy))


def _wait_ms(base_seconds: int, count: int, policy: RetryPolicy) -> int:
    return int(min(policy.backoff_max_seconds, base_seconds * 2 ** min(count - 1, 30)) * 1000)
