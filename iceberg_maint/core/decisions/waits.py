"""Waits: back-off, quarantine and pending publishes, and how long a decision made with a time stays the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from iceberg_maint.core.decisions.history import ENVIRONMENT_WAIT_MS, FAULTY_CRASHES, PartitionHistory
from iceberg_maint.core.model.other_writers import PendingPublish
from iceberg_maint.core.model.reasons import LOST_RACES, Reason
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.core.policy.runs import PublishMode, RetryPolicy

T = TypeVar("T")


def decided(decide: Callable[[int], T], now_ms: int) -> tuple[T, int, int]:
    """Returns what `decide` returns for this time, and the first and the last time, ms since epoch, for which it is the same.

    Both are `now_ms` if `decide` asks something else of the time than how it compares.
    """
    span = _Span(now_ms)
    try:
        value = decide(cast("int", LastingTime(now_ms, span)))
    except TypeError:
        return decide(now_ms), now_ms, now_ms
    return value, span.first_ms, span.last_ms


_EVER = 1 << 62


class _Span:
    """The times for which all answers so far are the same."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self.first_ms, self.last_ms = -_EVER, _EVER

    def changes_at(self, at_ms: int) -> None:
        """Ends the span where an answer changes: at this time it is another one than a millisecond before."""
        if at_ms <= self._now_ms:
            self.first_ms = max(self.first_ms, at_ms)
        else:
            self.last_ms = min(self.last_ms, at_ms - 1)

    def is_unknown(self) -> None:
        """Ends the span at once."""
        self.first_ms = self.last_ms = self._now_ms


class LastingTime:
    """The time less `minus` ms, divided by `per` if that is a number. It stands in for an integer, or for a float."""

    __slots__ = ("_minus", "_now_ms", "_per", "_span")

    def __init__(self, now_ms: int, span: _Span, minus: int = 0, per: int | None = None) -> None:
        self._now_ms, self._span, self._minus, self._per = now_ms, span, minus, per

    def _at(self, ms: int) -> float:
        """The number at a time. It never falls as the time grows: a division rounds correctly."""
        return ms - self._minus if self._per is None else (ms - self._minus) / self._per

    def _answer(self, holds: Callable[[float], bool], near: float) -> bool:
        """Returns whether the number is one for which a comparison holds that holds from some number, near this one, on."""
        if math.isfinite(near):
            estimate = math.ceil(near * (self._per or 1)) + self._minus
            for at_ms in range(estimate - 1, estimate + 3):
                if holds(self._at(at_ms)) and not holds(self._at(at_ms - 1)):
                    self._span.changes_at(at_ms)
                    break
            else:
                self._span.is_unknown()
        else:
            self._span.is_unknown()
        return holds(self._at(self._now_ms))

    def __ge__(self, other: float) -> bool:
        return self._answer(lambda number: number >= other, other)

    def __gt__(self, other: float) -> bool:
        return self._answer(lambda number: number > other, other)

    def __lt__(self, other: float) -> bool:
        return not self >= other

    def __le__(self, other: float) -> bool:
        return not self > other

    def __sub__(self, ms: int) -> LastingTime:
        if self._per is not None or not isinstance(ms, int):
            return NotImplemented
        return LastingTime(self._now_ms, self._span, self._minus + ms)

    def __truediv__(self, by: int) -> LastingTime:
        if self._per is not None or not isinstance(by, int) or by <= 0:
            return NotImplemented
        return LastingTime(self._now_ms, self._span, self._minus, by)

    def __floordiv__(self, by: int) -> int:
        """The number itself, which changes at its next multiple."""
        if self._per is not None or not isinstance(by, int) or by <= 0:
            return NotImplemented
        whole = (self._now_ms - self._minus) // by
        self._span.changes_at(self._minus + whole * by)
        self._span.changes_at(self._minus + (whole + 1) * by)
        return whole

    def __bool__(self) -> bool:
        raise TypeError("a lasting time is not a number")

    def __eq__(self, other: object) -> bool:
        raise TypeError("a lasting time is not a number")

    def __hash__(self) -> int:
        raise TypeError("a lasting time is not a number")

    def __repr__(self) -> str:
        raise TypeError("a lasting time has no text")


NO_GAIN_REASONS = (Reason.NO_GAIN, Reason.FILE_TOO_LARGE, Reason.UNSUPPORTED_KEY, Reason.UNSUPPORTED_TYPE)
"""Why a plan has no work for a due partition."""
CRASH_SHARE = 0.2
"""The wait after crashes, as a share of that after failures: the next attempt uses what the dead one wrote."""
_NO_FAULT = LOST_RACES.union(NO_GAIN_REASONS)


def write_ahead(history: PartitionHistory, policy: RetryPolicy, now_ms: int) -> PartitionHistory:
    """Returns the history to store before an attempt starts, so that a crash without a report still backs
    off.

    The first crash may be resumed at once. The wait starts with the second crash in a row.
    """
    crashes = history.crashes + 1
    wait_ms = _wait_ms(policy.backoff_seconds * CRASH_SHARE, crashes - 1, policy) if crashes > 1 else 0
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


def backs_off(history: PartitionHistory, now_ms: int) -> bool:
    """Returns whether the partition must still wait, also for a person's run."""
    return not history.environment_failures and automation_waits(history, now_ms)


def automation_waits(history: PartitionHistory, now_ms: int) -> bool:
    """Returns whether the automation must still leave the partition. A wait for the environment that is longer than the
    longest one was dated by a clock that was ahead."""
    if history.not_before_ms is None or now_ms >= history.not_before_ms:
        return False
    return not history.environment_failures or history.not_before_ms <= now_ms + ENVIRONMENT_WAIT_MS


def runs_isolated(history: PartitionHistory) -> bool:
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


def _wait_ms(base_seconds: float, count: int, policy: RetryPolicy) -> int:
    return int(min(policy.backoff_max_seconds, base_seconds * 2 ** min(count - 1, 30)) * 1000)


_NAMED = 5


@dataclass(frozen=True, slots=True)
class PublishWait:
    """What is waited for, the oldest first, and the time when the last wait ends by itself, None: never."""

    pending: tuple[PendingPublish, ...]
    until_ms: int | None

    @property
    def names(self) -> str:
        """The branches and staged snapshots by name."""
        named = [f"{p.kind.value} {p.name}" for p in self.pending[:_NAMED]]
        others = len(self.pending) - len(named)
        return ", ".join(named) + (f" and {others} more" if others else "")

    def evidence(self) -> dict[str, str]:
        """The evidence of a decision, as texts by name."""
        until = {} if self.until_ms is None else {"pending_until_ms": str(self.until_ms)}
        return {"pending": self.names, "pending_since_ms": str(self.pending[0].since_ms), **until}


def publish_wait(pending: Sequence[PendingPublish], policy: Policy, now_ms: int) -> PublishWait | None:
    """Returns the wait by the policy, None if there is nothing to wait for."""
    rule = policy.write_audit_publish
    if rule.mode is PublishMode.IGNORE:
        return None
    limit_ms = None if rule.max_age_seconds is None else rule.max_age_seconds * 1000
    young = [p for p in pending if limit_ms is None or now_ms < p.since_ms + limit_ms]
    if not young:
        return None
    young.sort(key=lambda p: p.since_ms)
    return PublishWait(tuple(young), None if limit_ms is None else young[-1].since_ms + limit_ms)
