"""Totals: the current value of each series, in memory. A receiver that reads current values needs them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from threading import Lock

from iceberg_maint.integrations.telemetry.series import DURATION_BUCKETS_SECONDS, Kind, Sample, Series


@dataclass(slots=True)
class Distribution:
    """A histogram. `buckets` holds one count per upper bound: the number of values up to that bound. The last bound
    is infinity. `total` is the sum of the values."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(DURATION_BUCKETS_SECONDS) + 1))
    total: float = 0.0

    def add(self, value: float) -> None:
        """Adds one value."""
        for n, bound in enumerate((*DURATION_BUCKETS_SECONDS, float("inf"))):
            self.buckets[n] += value <= bound
        self.total += value

    @property
    def count(self) -> int:
        """The number of values."""
        return self.buckets[-1]


Value = float | Distribution
Key = tuple[Series, tuple[str, ...]]
"""A series and its label values."""


class Totals:
    """The current values of all series. A series has one value per set of label values. Safe for several threads."""

    def __init__(self) -> None:
        self._values: dict[Key, Value] = {}
        self._lock = Lock()

    def copy(self, zero: Collection[Key] = ()) -> Totals:
        """Returns independent totals with the same values; those of `zero` are zero."""
        other = Totals()
        for series, values in self.families():
            for labels, value in values:
                empty = Distribution() if isinstance(value, Distribution) else 0.0
                other._values[series, labels] = empty if (series, labels) in zero else value
        return other

    def __contains__(self, key: Key) -> bool:
        """Whether the series has a value for these labels."""
        return key in self._values

    def add(self, samples: Iterable[Sample]) -> None:
        """Adds to counters, replaces the values of gauges, and counts values in the buckets of histograms."""
        with self._lock:
            for sample in samples:
                self._add(sample)

    def _add(self, sample: Sample) -> None:
        key = (sample.series, sample.labels)
        match sample.series.kind:
            case Kind.GAUGE:
                self._values[key] = sample.value
            case Kind.COUNTER:
                current = self._values.get(key, 0.0)
                assert isinstance(current, float | int)
                self._values[key] = current + sample.value
            case Kind.HISTOGRAM:
                distribution = self._values.setdefault(key, Distribution())
                assert isinstance(distribution, Distribution)
                distribution.add(sample.value)

    def families(self) -> Iterator[tuple[Series, list[tuple[tuple[str, ...], Value]]]]:
        """Yields every series that has a value, with pairs of label values and value. The order is that of first samples.
        Distributions are copies."""
        with self._lock:
            families: dict[Series, list[tuple[tuple[str, ...], Value]]] = {}
            for (series, labels), value in self._values.items():
                value_copy = (
                    Distribution(list(value.buckets), value.total)
                    if isinstance(value, Distribution)
                    else value
                )
                families.setdefault(series, []).append((labels, value_copy))
        yield from families.items()
