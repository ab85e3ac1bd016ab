"""Decisions on a whole table: the order of its operations, the view that combines them, and the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from iceberg_maint.core.decisions.applicability import findings_for, has_old_deletes, may_convert
from iceberg_maint.core.decisions.decide import other_data_operation, table_verdict
from iceberg_maint.core.decisions.history import ERROR_CODE, Fault, TableHistory
from iceberg_maint.core.decisions.windows import BLOCKED
from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.model.ids import READING, Operation, PartitionKey
from iceberg_maint.core.model.reasons import Decision, PartitionDecision, Reason, Severity, Verdict
from iceberg_maint.core.policy.data import Policy, RewriteStrategy, Route

_SEVERITY_ORDER = (Verdict.RUN, Verdict.REFUSE, Verdict.DEFER, Verdict.SKIP)
_QUIET = (Reason.HEALTHY, Reason.OTHER_OPERATION)


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
    running = [d for d in decisions if d.verdict is not Verdict.RUN or d.operation in runs]
    leading = min(running or decisions, key=lambda d: _rank(d.verdict, d.reason))
    verdict, reason = leading.verdict, leading.reason
    if not running:
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
    blocked = [p for p in partition_decisions if p.reason in BLOCKED and other_data_operation(p.operation)]
    if any(has_old_deletes(p.findings) for p in blocked):
        return max(blocked, key=lambda p: (p.reason is Reason.QUARANTINED, p.until_ms or 0))
    return min(partition_decisions, key=lambda p: _SEVERITY_ORDER.index(p.verdict))


def _rank(verdict: Verdict, reason: Reason) -> tuple[int, int]:
    return _SEVERITY_ORDER.index(verdict), _QUIET.index(reason) + 1 if reason in _QUIET else 0


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


_REFUSALS = frozenset(
    {
        "ICM-115",
        "ICM-119",
        "ICM-120",
        "ICM-124",
        "ICM-135",
        "ICM-155",
        "ICM-173",
        "ICM-180",
        "ICM-182",
        "ICM-183",
    }
)
"""Codes of operations on data that are refused."""


class Standing(StrEnum):
    """NOT_READ: never measured. MEASURED: measured, and nothing failed since. REFUSED: the table cannot be read, or an
    operation is refused with a code. FAILED: the last attempt at an operation failed."""

    NOT_READ = "not_read"
    MEASURED = "measured"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class TableVerdict:
    """The standing of a table and its faults, the most severe first."""

    standing: Standing
    faults: tuple[Fault, ...] = ()

    @property
    def message(self) -> str:
        """The message of the most severe fault: code, file, rule and fix. Empty without a fault."""
        return self.faults[0].history.reason if self.faults else ""

    @property
    def code(self) -> str | None:
        """The code of the most severe fault. None without a fault, and for an error without a code."""
        found = ERROR_CODE.match(self.message)
        return found.group() if found else None

    @property
    def until_ms(self) -> int | None:
        """When the most severe fault is tried again. None without a fault, and if it waits for a person."""
        return None if not self.faults or self.is_quarantined else self.faults[0].history.not_before_ms

    @property
    def is_quarantined(self) -> bool:
        """Whether the most severe fault waits until a person releases it."""
        return bool(self.faults) and self.faults[0].history.quarantined


def verdict_on(is_measured: bool, faults: Iterable[Fault]) -> TableVerdict:
    """Returns the verdict on a table whose health is stored or not, from its faults."""
    ordered = tuple(sorted(faults, key=_gravity))
    if ordered:
        return TableVerdict(Standing.REFUSED if _is_refusal(ordered[0]) else Standing.FAILED, ordered)
    return TableVerdict(Standing.MEASURED if is_measured else Standing.NOT_READ)


def _is_refusal(fault: Fault) -> bool:
    code = ERROR_CODE.match(fault.history.reason)
    if code is None:
        return False
    return fault.operation in (READING, Operation.REMOVE_ORPHAN_FILES) or code.group() in _REFUSALS


def _gravity(fault: Fault) -> tuple[bool, bool, bool, str, str]:
    """What cannot be read comes first, then failures, then refusals."""
    return (
        fault.operation != READING,
        _is_refusal(fault),
        not fault.history.quarantined,
        fault.operation,
        fault.partition,
    )
