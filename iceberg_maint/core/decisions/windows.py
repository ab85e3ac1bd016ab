"""Windows: how many of the due partitions one run processes, in which order and in which commits."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.model.ids import Operation, PartitionKey
from iceberg_maint.core.model.reasons import PartitionDecision, Reason, Verdict
from iceberg_maint.core.policy.data import Policy, RewriteStrategy
from iceberg_maint.core.policy.runs import WindowOrder, WindowsPolicy

_BatchKind = tuple[Operation, bool, bool]


@dataclass(frozen=True, slots=True)
class BatchPart:
    """What the work on one partition takes of a batch. Partitions of one table share a batch if their kind is the same: the
    operation, whether equality deletes apply, and whether rows are sorted."""

    kind: _BatchKind
    files: int
    input_bytes: int
    windows: WindowsPolicy
    is_columnar: bool

    def fits(self, partitions: int, files: int, input_bytes: int) -> bool:
        """Returns whether the policy allows a batch of this size."""
        windows = self.windows
        most_partitions = (
            windows.partitions_per_columnar_batch(input_bytes)
            if self.is_columnar
            else windows.partitions_per_batch
        )
        return (
            partitions <= most_partitions
            and files <= windows.max_files_per_batch
            and input_bytes <= windows.max_bytes_per_batch
        )


def batch_part(due: PartitionDecision, health: PartitionHealth, policy: Policy, files: int) -> BatchPart:
    """Returns what the work on a due partition takes of a batch, if it reads `files` data files."""
    is_sorted = due.reason is Reason.LAYOUT
    merges = due.operation is Operation.REWRITE_POSITION_DELETE_FILES
    return BatchPart(
        (due.operation, health.applicable_equality_delete_files > 0, is_sorted),
        files,
        due.candidate_bytes,
        policy.windows,
        policy.rewrite_data_files.strategy is RewriteStrategy.COLUMNAR and not (is_sorted or merges),
    )


class BatchCount:
    """Counts the batches of work that is added partition by partition."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, _BatchKind], tuple[int, int, int]] = {}

    def more(self, table_uuid: str, part: BatchPart | None, batches: float) -> float:
        """Returns the batches that this work would add: none if the open batch of its table has room, else `batches`, which
        is what it needs alone. Work without a part shares no batch."""
        return batches if part is None or self._joined(table_uuid, part) is None else 0.0

    def add(self, table_uuid: str, part: BatchPart | None, batches: float) -> None:
        """Adds the work. If it needs one batch and does not fit into the open one, its batch is open from now on."""
        if part is None or batches > 1:
            return
        alone = (1, part.files, part.input_bytes)
        self._open[table_uuid, part.kind] = self._joined(table_uuid, part) or alone

    def _joined(self, table_uuid: str, part: BatchPart) -> tuple[int, int, int] | None:
        """The size of the open batch with this work, None if there is none or the work does not fit."""
        current = self._open.get((table_uuid, part.kind))
        if current is None:
            return None
        partitions, files, input_bytes = current
        joined = (partitions + 1, files + part.files, input_bytes + part.input_bytes)
        return joined if part.fits(*joined) else None


BLOCKED = (Reason.BACK_OFF, Reason.QUARANTINED)
"""Reasons that block one operation and not the other."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The remaining budget. None means unlimited."""

    partitions: int | None
    bytes: int | None

    def takes(self, candidate_bytes: int, *, first: bool) -> bool:
        """Returns whether one more partition fits. The first one may be larger than the remaining bytes:
        the plan then takes the part of it that fits. Otherwise the largest partitions would never be
        processed."""
        return (self.partitions is None or self.partitions >= 1) and (
            self.bytes is None or self.bytes >= (1 if first else candidate_bytes)
        )

    def holds(self, size_bytes: int, *, partitions: int) -> bool:
        """Returns whether this much fits exactly."""
        return (self.partitions is None or self.partitions >= partitions) and (
            self.bytes is None or self.bytes >= size_bytes
        )

    def less(self, size_bytes: int, *, partitions: int = 1) -> Budget:
        """Returns the budget that remains after this much more."""
        return Budget(
            None if self.partitions is None else self.partitions - partitions,
            None if self.bytes is None else max(0, self.bytes - size_bytes),
        )


def run_budget(policy: WindowsPolicy) -> Budget:
    """Returns the budget of one run."""
    return Budget(policy.max_partitions_per_run, policy.max_bytes_per_run)


def hour_budget(policy: WindowsPolicy, used_partitions: int, used_bytes: int) -> Budget:
    """Returns the remaining budget of this hour."""
    return Budget(
        None
        if policy.max_partitions_per_hour is None
        else max(0, policy.max_partitions_per_hour - used_partitions),
        None if policy.max_bytes_per_hour is None else max(0, policy.max_bytes_per_hour - used_bytes),
    )


def plan_budget(run: Budget, hour: Budget) -> tuple[int | None, Reason]:
    """Returns the maximum input bytes of one plan, and the reason of the cap that sets it."""
    if hour.bytes is not None and (run.bytes is None or hour.bytes < run.bytes):
        return hour.bytes, Reason.HOUR_BUDGET
    return run.bytes, Reason.RUN_BUDGET


def in_order(
    decisions: Iterable[PartitionDecision],
    beside: Iterable[PartitionDecision],
    either: Collection[PartitionKey],
    order: WindowOrder,
    last_change_ms: Mapping[PartitionKey, int],
) -> list[PartitionDecision]:
    """Returns the due partitions: worst first by score, or the longest unchanged first; ties by key.

    `beside` holds the other operation's decisions, `either` the partitions that a plan may leave to
    either. Both operations order by the worse of their scores, so that both begin with the same
    partitions. Otherwise each could always spend its windows on partitions that its plans leave to the
    other. For the same reason a partition comes last if its work may be left to an operation that holds
    it.
    """
    other_decisions = {p.partition: p for p in beside}

    def sort_key(p: PartitionDecision) -> tuple[bool, float, PartitionKey]:
        other = other_decisions.get(p.partition)
        is_blocked = other is not None and other.reason in BLOCKED and p.partition in either
        if order is WindowOrder.OLDEST_FIRST:
            return is_blocked, last_change_ms.get(p.partition, 0), p.partition
        score = other.score if other is not None and other.verdict is Verdict.RUN else 0.0
        return is_blocked, -max(p.score, score), p.partition

    return sorted((p for p in decisions if p.verdict is Verdict.RUN), key=sort_key)


def take(ordered: Iterable[PartitionDecision], run: Budget, hour: Budget) -> list[PartitionDecision]:
    """Marks the partitions that do not fit as DEFER. Smaller ones behind them may still fit. Sizes are
    estimates here; the plan meets the byte caps exactly."""
    decisions: list[PartitionDecision] = []
    first = True
    for decision in ordered:
        size = decision.candidate_bytes
        if not run.takes(size, first=first):
            decisions.append(_deferred(decision, Reason.RUN_BUDGET))
        elif not hour.takes(size, first=first):
            decisions.append(_deferred(decision, Reason.HOUR_BUDGET))
        else:
            run, hour, first = run.less(size), hour.less(size), False
            decisions.append(decision)
    return decisions


def _deferred(decision: PartitionDecision, reason: Reason) -> PartitionDecision:
    return replace(decision, verdict=Verdict.DEFER, reason=reason)


def in_blackout(windows: Iterable[str], minute_of_day: int) -> str | None:
    """Returns the blackout window (`HH:MM-HH:MM`, UTC, half-open, may cross midnight) that contains this
    minute, None if there is none."""
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
