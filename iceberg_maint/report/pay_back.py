"""Pay-back as text: what the work on a partition costs, what reads save, and from which number of reads on it pays."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10

from iceberg_maint.core.model.pay_back import PayBack
from iceberg_maint.core.model.reasons import PartitionDecision
from iceberg_maint.report.formatting import duration, number, sentence, share, size


def reason_text(decision: PartitionDecision) -> str:
    """The reason of the decision on a partition; for one that is left alone, with the numbers of the judgement."""
    return (
        sentence(decision.reason)
        if decision.pay_back is None
        else f"left alone: {_numbers(decision.pay_back)}"
    )


def left_alone_text(decisions: Sequence[PartitionDecision], partitions: int) -> str:
    """One sentence about the partitions of a table that are left alone; `partitions` is the number of all. Empty without
    one."""
    judged = [d.pay_back for d in decisions if d.pay_back is not None]
    if not judged:
        return ""
    least = max(judged, key=lambda j: j.saved_seconds - j.cost_seconds)
    cost, cost_bytes = sum(j.cost_seconds for j in judged), sum(j.cost_bytes for j in judged)
    return (
        f"{share(len(judged), partitions, 'partition')} left alone: the work costs about {duration(cost)} of CPU to read "
        f"{size(cost_bytes)}; {_reads(least)} save {duration(sum(j.saved_seconds for j in judged))} {_period(judged)}."
    )


def pay_back_change(pay_back: PayBack) -> str:
    """The change after which the work on the partition pays."""
    least = pay_back.least_reads_per_day
    reads = "" if least is None else f"windows.reads_per_day of {_up(least)} or more, "
    limit = "" if pay_back.ends_with_data else "a higher fleet_budget.pay_back_seconds, "
    return f"{reads}{limit}more files or deletes"


def _numbers(judged: PayBack) -> str:
    return (
        f"the work costs about {duration(judged.cost_seconds)} of CPU to read {size(judged.cost_bytes)}; {_reads(judged)}, each "
        f"with {number(round(judged.fewer_files, 1))} fewer to open, save {duration(judged.saved_seconds)} {_period([judged])}"
    )


def _reads(judged: PayBack) -> str:
    count = judged.reads_per_day
    return f"{number(count)} {'read' if count == 1 else 'reads'} a day (windows.reads_per_day)"


def _period(judged: Sequence[PayBack]) -> str:
    longest = max(judged, key=lambda j: j.period_seconds)
    most = "at most " if any(j.period_seconds != longest.period_seconds for j in judged) else ""
    why = "until writers replace the data" if longest.ends_with_data else "fleet_budget.pay_back_seconds"
    return f"in {most}{duration(longest.period_seconds)} ({why})"


def _up(value: float) -> str:
    """A value above 0 to two digits, rounded up."""
    step = 10.0 ** (floor(log10(value)) - 1)
    return number(float(f"{ceil(value / step) * step:.2g}"))
