"""What the fleet spent in the period of its budget, and the speed of its batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from iceberg_maint.core.decisions.fleet_budget import FleetBudget, Spend
from iceberg_maint.core.decisions.priority import BATCH_SECONDS, Load, Speed
from iceberg_maint.ports.ledger import Ledger

_LEAST_BATCHES = 10
"""Batches from which the speed is measured."""


def spends_of(ledger: Ledger, budget: FleetBudget) -> tuple[tuple[Spend, ...], Speed]:
    """Returns what was spent in the period, and the speed of its batches. A batch that has not ended counts with its predicted seconds."""
    spends = ledger.records.fleet_spends(budget.period_seconds)
    speed = measured_speed(spends)
    return tuple(replace(s, load=batch_load(s.load.bytes, speed)) if s.is_open else s for s in spends), speed


def batch_load(input_bytes: int, speed: Speed) -> Load:
    """The predicted load of one batch of this size."""
    cpu_rate = speed.bytes_per_cpu_second
    return Load(
        input_bytes,
        BATCH_SECONDS + input_bytes / speed.bytes_per_second,
        1.0,
        None if cpu_rate is None else BATCH_SECONDS + input_bytes / cpu_rate,
    )


def measured_speed(spends: Sequence[Spend]) -> Speed:
    """Returns the speed of the batches of the period; the assumed one while they are few."""
    rate = _rate([(s.load.bytes, s.load.seconds) for s in spends])
    cpu_rate = _rate([(s.load.bytes, s.load.cpu_seconds or 0.0) for s in spends])
    return Speed(Speed().bytes_per_second if rate is None else rate, cpu_rate)


def _rate(ended: Sequence[tuple[int, float]]) -> float | None:
    """Bytes per second of batches whose seconds are known, None while they are few."""
    known = [(size, taken) for size, taken in ended if taken > 0]
    seconds = sum(max(0.0, taken - BATCH_SECONDS) for _, taken in known)
    if len(known) < _LEAST_BATCHES or seconds <= 0:
        return None
    return max(1.0, sum(size for size, _ in known) / seconds)
