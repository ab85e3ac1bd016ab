"""Pay-back: whether the work on a partition saves its readers as much as it costs.

Both sides are CPU seconds. The saving lasts until writers replace the data, at most for the time of the budget.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from iceberg_maint.core.decisions.fleet_budget import FleetBudget
from iceberg_maint.core.decisions.history import FleetWait
from iceberg_maint.core.decisions.priority import BATCH_SECONDS, FILE_SECONDS, Load, Prediction
from iceberg_maint.core.model.reasons import Finding, PayBack, Reason, Severity

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


def judge(
    prediction: Prediction,
    crossed: Iterable[Finding],
    readers: Readers,
    budget: FleetBudget,
    wait: FleetWait | None,
    sharing: int,
) -> PayBack | None:
    """Returns whether the reads pay back the work, with the numbers. None if the work is not judged, and so is done.

    Work is not judged if the reads are not known, if a finding is not weighed, and if it waits for the budget: it was judged when
    it became due, and keeps its place and its bound. The prediction has no share of a run. `sharing` partitions share a batch.
    A file that a scan no longer opens saves it what a rewrite needs to open it.
    """
    if readers.per_day is None or not may_be_left_alone(crossed):
        return None
    if wait is not None and not wait.is_left_alone:
        return None
    horizon = budget.pay_back_seconds
    ends_with_data = readers.life_seconds is not None and readers.life_seconds < horizon
    return PayBack(
        reads_per_day=readers.per_day,
        fewer_files=prediction.gain,
        # The work is repeated until it lands.
        read_seconds=prediction.gain * FILE_SECONDS * (1 - prediction.conflict),
        period_seconds=readers.life_seconds
        if ends_with_data and readers.life_seconds is not None
        else horizon,
        ends_with_data=ends_with_data,
        cost_seconds=budget.cpu_seconds(_shared(prediction.load, sharing)),
        cost_bytes=prediction.load.bytes,
    )


def _shared(load: Load, sharing: int) -> Load:
    """The load of work that needs one batch, without the part of the batch that others bear."""
    if load.commits > 1 or sharing <= 1:
        return load
    others = BATCH_SECONDS * (1 - 1 / sharing)
    cpu_seconds = None if load.cpu_seconds is None else load.cpu_seconds - others
    return replace(load, seconds=load.seconds - others, cpu_seconds=cpu_seconds)
