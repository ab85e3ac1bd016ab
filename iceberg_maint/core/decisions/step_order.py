"""Steps of a run: the order of its operations, and when a rewrite comes before a conversion.

A conversion writes a position delete file for each data file, and the rewrite of small files right after drops it again.
So small files that are due are rewritten first, with the equality deletes applied, and the conversion finds the other files
only: docs/design/decisions/deletes-route.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from iceberg_maint.core.decisions.applicability import findings_for, has_old_deletes, may_convert
from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.model.ids import Operation, PartitionKey
from iceberg_maint.core.model.reasons import Decision, PartitionDecision, Reason, Severity
from iceberg_maint.core.policy.data import Policy, RewriteStrategy, Route

_NOT_SIZE = (Reason.EQUALITY_DELETES, Reason.LAYOUT)
"""Reasons of a rewrite that do not make small files due."""


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of a run. `before_conversion`: the conversion of the run follows, so the rewrite also takes the
    files of partitions under conversion that are due for other reasons than equality deletes."""

    operation: Operation
    before_conversion: bool = False


def rewrites_first(
    decisions: Mapping[Operation, Decision],
    histories: Mapping[Operation, TableHistory],
    policy: Policy,
    partitions: Mapping[PartitionKey, PartitionHealth],
) -> bool:
    """Returns whether a rewrite comes before the conversion: if `columnar` writes, the policy leaves the route to the plan,
    and a partition with old equality deletes that both operations may take is due for a rewrite for another reason as well.

    If deletes were due already at the last rewrite, and no conversion has been done since, the conversion comes first.
    Otherwise rewrites that use up the time, the batches or the budget of every run would keep the conversion from its
    turn. `partitions` is the health of the table's partitions.
    """
    converting = decisions.get(Operation.CONVERT_EQUALITY_DELETES)
    rewriting = decisions.get(Operation.REWRITE_DATA_FILES)
    if converting is None or rewriting is None:
        return False
    if policy.rewrite_data_files.strategy is not RewriteStrategy.COLUMNAR:
        return False
    if policy.equality_deletes.route is not Route.AUTO or not may_convert(policy.equality_deletes):
        return False
    to_convert = {p.partition for p in converting.due() if has_old_deletes(p.findings)}
    converted_ms = histories[Operation.CONVERT_EQUALITY_DELETES].last_done_ms
    rewritten_ms = histories[Operation.REWRITE_DATA_FILES].last_done_ms
    if rewritten_ms is not None and (converted_ms is None or converted_ms < rewritten_ms):
        age_ms = 1000 * (policy.rewrite_data_files.equality_delete_max_age_seconds or 0)
        oldest_ms = [partitions[key].oldest_equality_delete_ms for key in to_convert]
        # The time of a delete whose snapshot has expired, and of the snapshots before it, is not known.
        if any(ms is None or ms + age_ms <= rewritten_ms for ms in oldest_ms):
            return False
    return any(p.partition in to_convert and _has_due_files(p, policy) for p in rewriting.due())


def _has_due_files(due: PartitionDecision, policy: Policy) -> bool:
    findings = findings_for(Operation.REWRITE_DATA_FILES, due.findings, policy)
    return any(f.severity is Severity.ERROR and f.reason not in _NOT_SIZE for f in findings)
