"""Pay-back: whether the work on a partition saves its readers as much as it costs.

Both sides are CPU seconds. The saving lasts until writers replace the data, at most for the time of the budget.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from iceberg_maint.core.decisions.fleet_budget import FleetBudget
from iceberg_maint.core.decisions.history import FleetWait
from iceberg_maint.core.decisions.priority import BATCH_SECONDS, FILE_SECONDS, Load, Prediction
from iceberg_maint.core.model.reasons import Finding, Reason, Severity

DAY_SECONDS = 86_400
_JUDGED = frozenset({Reason.SMALL_FILES, Reason.DELETE_RATIO, Reason.POSITION_DELETES})
"""Reasons that cost readers time and nothing else. Equality deletes, which some readers refuse, limits that the policy sets
(`max_files`, `max_delete_files`) and the layout are not weighed against a cost."""


def may_be_left_alone(crossed: Iterable[Finding]) -> bool:
    """Whether every due finding of a partition, of all operations, may be weighed against its cost."""
    return all(f.reason in _JUDGED for f in crossed if f.severity is Severity.ERROR)


@dataclass(frozen=True, slots=True)
class Readers:
    """What is known of the reads of a partition: how many a day (None: unknown), and how long its data lives (None: writers
    do not replace it)."""

    per_day: float | None
    life_seconds: float | None = None


def is_worth_it(
    prediction: Prediction,
    crossed: Iterable[Finding],
    readers: Readers,
    budget: FleetBudget,
    wait: FleetWait | None,
    sharing: int,
) -> bool:
    """Returns whether the work takes part in the division of the budget.

    True if the reads are not known, if a finding is not weighed, and if the work waits for the budget: it was judged when it became
    due, and keeps its place and its bound. The prediction has no share of a run. `sharing` partitions share a batch. A file
    that a scan no longer opens saves it what a rewrite needs to open it.
    """
    if readers.per_day is None or not may_be_left_alone(crossed):
        return True
    if wait is not None and not wait.is_left_alone:
        return True
    horizon = budget.pay_back_seconds
    seconds = horizon if readers.life_seconds is None else min(readers.life_seconds, horizon)
    saved = readers.per_day * seconds / DAY_SECONDS * prediction.gain * FILE_SECONDS
    # The work is repeated until it lands.
    return saved * (1 - prediction.conflict) >= budget.cpu_seconds(_shared(prediction.load, sharing))


def _shared(load: Load, sharing: int) -> Load:
    """The load of work that needs one batch, without the part of the batch that others bear."""
    if load.commits > 1 or sharing <= 1:
        return load
    others = BATCH_SECONDS * (1 - 1 / sharing)
    cpu_seconds = None if load.cpu_seconds is None else load.cpu_seconds - others
    return replace(load, seconds=load.seconds - others, cpu_seconds=cpu_seconds)
