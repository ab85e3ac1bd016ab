"""Windows: how many of the due partitions one run takes on, and in which order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from iceberg_maint.core.model.reasons import PartitionDecision, Reason, Verdict
from iceberg_maint.core.policy.data import WindowOrder, WindowsPolicy

HELD = (Reason.BACK_OFF, Reason.QUARANTINED)
"""Reasons of one operation that the other does not share."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What is left to spend; None means unlimited."""

    partitions: int | None
    bytes: int | None

    def takes(self, candidate_bytes: int, *, first: bool) -> bool:
        """Whether one more partition fits. The first one may be larger than what is left: the
        plan then takes the part of it that fits, or the largest partitions would never be done.
        """
        return (self.partitions is None or self.partitions >= 1) and (
            self.bytes is None or self.bytes >= (1 if first else candidate_bytes)
        )

    def holds(self, size_bytes: int, *, partitions: int) -> bool:
        """Whether so much fits, exactly."""
        return (self.partitions is None or self.partitions >= partitions) and (
            self.bytes is None or self.bytes >= size_bytes
        )

    def less(self, size_bytes: int, *, partitions: int = 1) -> Budget:
        """What is left after so much more."""
        return Budget(
            None if self.partitions is None else self.partitions - partitions,
            None if self.bytes is None else max(0, self.bytes - size_bytes),
        )


def run_budget(policy: WindowsPolicy) -> Budget:
    """The budget of one run."""
    return Budget(policy.max_partitions_per_run, policy.max_bytes_per_run)


def hour_budget(policy: WindowsPolicy, used_partitions: int, used_bytes: int) -> Budget:
    """What is left of this hour's budget."""
    return Budget(
        None
        if policy.max_partitions_per_hour is None
        else max(0, policy.max_partitions_per_hour - used_partitions),
        None if policy.max_bytes_per_hour is None else max(0, policy.max_bytes_per_hour - used_bytes),
    )


def plan_budget(run: Budget, hour: Budget) -> tuple[int | None, Reason]:
    """The most input bytes one plan may hold, and the cap that says so."""
    if hour.bytes is not None and (run.bytes is None or hour.bytes < run.bytes):
        return hour.bytes, Reason.HOUR_BUDGET
    return run.bytes, Reason.RUN_BUDGET


def in_order(
    found: Iterable[PartitionDecision],
    beside: Iterable[PartitionDecision],
    either: Collection[str],
    order: WindowOrder,
    last_change_ms: Mapping[str, int],
) -> list[PartitionDecision]:
    """Those found due, worst first by score, or the longest unchanged first; ties by key.

    `beside` is what the other operation decides, `either` the partitions that a plan may leave to
    either. Both operations go by the worse of their scores, so that what comes first for one does
    for the other: else each could spend its windows on what its plans leave to the other, for ever.
    For the same reason what may be left to an operation that holds it comes last.
    """
    others = {p.partition: p for p in beside}

    def turn(p: PartitionDecision) -> tuple[bool, float, str]:
        other = others.get(p.partition)
        held = other is not None and other.reason in HELD and p.partition in either
        if order is WindowOrder.OLDEST_FIRST:
            return held, last_change_ms.get(p.partition, 0), p.partition
        score = other.score if other is not None and other.verdict is Verdict.RUN else 0.0
        return held, -max(p.score, score), p.partition

    return sorted((p for p in found if p.verdict is Verdict.RUN), key=turn)


def take(ordered: Iterable[PartitionDecision], run: Budget, hour: Budget) -> list[PartitionDecision]:
    """Marks what does not fit as DEFER. What does not fit is passed over, and smaller ones behind
    it may still fit. Sizes are estimates here; the plan holds the byte caps exactly.
    """
    taken: list[PartitionDecision] = []
    first = True
    for decision in ordered:
        size = decision.candidate_bytes
        if not run.takes(size, first=first):
            taken.append(_deferred(decision, Reason.RUN_BUDGET))
        elif not hour.takes(size, first=first):
            taken.append(_deferred(decision, Reason.HOUR_BUDGET))
        else:
            run, hour, first = run.less(size), hour.less(size), False
            taken.append(decision)
    return taken


def _deferred(decision: PartitionDecision, reason: Reason) -> PartitionDecision:
    return replace(decision, verdict=Verdict.DEFER, reason=reason)


def in_blackout(windows: Iterable[str], minute_of_day: int) -> str | None:
    """The blackout window (`HH:MM-HH:MM`, UTC, half-open, may cross midnight) we are in."""
    for window in windows:
        start, end = (_minutes(part) for part in window.split("-"))
        inside = (
            start <= minute_of_day < end if start <= end else minute_of_day >= start or minute_of_day < end
        )
        if inside:
            return window
    return None


def _minutes(clock: str) -> int:
    hours, minutes = clock.split(":")
    return int(hours) * 60 + int(minutes)
