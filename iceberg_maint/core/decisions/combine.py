"""Joint: several operations' decisions as one view of the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from iceberg_maint.core.decisions.applicability import has_old_deletes
from iceberg_maint.core.decisions.decide import other_data_operation, table_verdict
from iceberg_maint.core.decisions.windows import HELD
from iceberg_maint.core.model.reasons import Decision, PartitionDecision, Reason, Verdict

_GRAVITY = (Verdict.RUN, Verdict.REFUSE, Verdict.DEFER, Verdict.SKIP)
_QUIET = (Reason.HEALTHY, Reason.EMPTY, Reason.OTHER_OPERATION)


def combine_decisions(decisions: Sequence[Decision]) -> Decision:
    """Several operations' decisions as one view of the table: of each partition the gravest verdict
    (RUN, REFUSE, DEFER, SKIP), on a tie the first operation's, and the same of the table.

    A partition whose old equality deletes both may clean is held as soon as one of the operations
    holds it: the plan may leave it to just that one. Budgets are those of the operation the
    table's verdict is of. Raises ValueError for no decisions.
    """
    if not decisions:
        raise ValueError("no decisions to join")
    by_key: dict[str, list[PartitionDecision]] = {}
    for decision in decisions:
        for p in decision.partitions:
            by_key.setdefault(p.partition, []).append(p)
    partitions = sorted(map(most_severe, by_key.values()), key=lambda p: p.verdict is not Verdict.RUN)
    runs = {p.operation for p in partitions if p.verdict is Verdict.RUN}
    # A table whose only work is held waits, though an operation alone would run.
    free = [d for d in decisions if d.verdict is not Verdict.RUN or d.operation in runs]
    gravest = min(free or decisions, key=lambda d: _rank(d.verdict, d.reason))
    verdict, reason = gravest.verdict, gravest.reason
    if not free:
        verdict, reason = table_verdict(partitions)
    waits = [p.until_ms for p in partitions if p.until_ms is not None]
    evidence = dict(gravest.evidence)
    if "due_partitions" in evidence:
        due = sum(p.verdict is Verdict.RUN for p in partitions)
        evidence["due_partitions"] = str(max(due, int(evidence["due_partitions"])))
    return replace(
        gravest,
        verdict=verdict,
        reason=reason,
        partitions=tuple(partitions),
        evidence=evidence,
        until_ms=min(waits, default=None) if verdict is Verdict.DEFER else None,
    )


def most_severe(found: Sequence[PartitionDecision]) -> PartitionDecision:
    held = [p for p in found if p.reason in HELD and other_data_operation(p.operation)]
    if any(has_old_deletes(p.findings) for p in held):
        return max(held, key=lambda p: (p.reason is Reason.QUARANTINED, p.until_ms or 0))
    return min(found, key=lambda p: _GRAVITY.index(p.verdict))


def _rank(verdict: Verdict, reason: Reason) -> tuple[int, int]:
    return _GRAVITY.index(verdict), _QUIET.index(reason) + 1 if reason in _QUIET else 0
