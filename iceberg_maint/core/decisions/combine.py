"""Combines the decisions on several operations into one view of the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from iceberg_maint.core.decisions.applicability import has_old_deletes
from iceberg_maint.core.decisions.decide import other_data_operation, table_verdict
from iceberg_maint.core.decisions.windows import HELD
from iceberg_maint.core.model.ids import PartitionKey
from iceberg_maint.core.model.reasons import Decision, PartitionDecision, Reason, Verdict

_SEVERITY_ORDER = (Verdict.RUN, Verdict.REFUSE, Verdict.DEFER, Verdict.SKIP)
_QUIET = (Reason.HEALTHY, Reason.EMPTY, Reason.OTHER_OPERATION)


def combine_decisions(decisions: Sequence[Decision]) -> Decision:
    """Returns one view of the table from several operations' decisions. The verdict of each partition is
    the most severe one (RUN, REFUSE, DEFER, SKIP), on a tie the first operation's. The same holds for the
    table.

    If both operations may clean a partition's old equality deletes, the partition is held as soon as one
    of them holds it: the plan may leave it to that operation. The budgets are those of the operation that
    gives the table's verdict. Raises ValueError for no decisions.
    """
    if not decisions:
        raise ValueError("there are no decisions to combine")
    by_key: dict[PartitionKey, list[PartitionDecision]] = {}
    for decision in decisions:
        for p in decision.partitions:
            by_key.setdefault(p.partition, []).append(p)
    partitions = sorted(map(most_severe, by_key.values()), key=lambda p: p.verdict is not Verdict.RUN)
    runs = {p.operation for p in partitions if p.verdict is Verdict.RUN}
    # If the only due partitions are held, the table waits, although one operation alone would run.
    unheld = [d for d in decisions if d.verdict is not Verdict.RUN or d.operation in runs]
    leading = min(unheld or decisions, key=lambda d: _rank(d.verdict, d.reason))
    verdict, reason = leading.verdict, leading.reason
    if not unheld:
        verdict, reason = table_verdict(partitions)
    waits = [p.until_ms for p in partitions if p.until_ms is not None]
    evidence = dict(leading.evidence)
    if "due_partitions" in evidence:
        due_count = sum(p.verdict is Verdict.RUN for p in partitions)
        evidence["due_partitions"] = str(max(due_count, int(evidence["due_partitions"])))
    return replace(
        leading,
        verdict=verdict,
        reason=reason,
        partitions=tuple(partitions),
        evidence=evidence,
        until_ms=min(waits, default=None) if verdict is Verdict.DEFER else None,
    )


def most_severe(partition_decisions: Sequence[PartitionDecision]) -> PartitionDecision:
    blocked = [p for p in partition_decisions if p.reason in HELD and other_data_operation(p.operation)]
    if any(has_old_deletes(p.findings) for p in blocked):
        return max(blocked, key=lambda p: (p.reason is Reason.QUARANTINED, p.until_ms or 0))
    return min(partition_decisions, key=lambda p: _SEVERITY_ORDER.index(p.verdict))


def _rank(verdict: Verdict, reason: Reason) -> tuple[int, int]:
    return _SEVERITY_ORDER.index(verdict), _QUIET.index(reason) + 1 if reason in _QUIET else 0
