"""Series: what a number is called, its samples, and their current values."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from threading import Lock

MAX_LABEL_BYTES = 180
"""Longest value of a label. DogStatsD allows 200 characters for a tag with its key."""
DURATION_BUCKETS_SECONDS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)
"""Upper bounds of the buckets of durations."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_.:/=*@+ -]|^ +| +\Z")


class Kind(StrEnum):
    """The kinds of series. A counter is sent as an increment, a gauge as its value, a histogram as one
    observed value."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Unit(StrEnum):
    """Units. Most are UCUM codes. `EPOCH` is a time: seconds since 1970, UTC."""

    COUNT = "1"
    BYTES = "By"
    SECONDS = "s"
    EPOCH = "epoch"
    RATIO = "ratio"


@dataclass(frozen=True, slots=True)
class Series:
    """One series of the catalogue. `labels` are all its labels, in order. `source` names the fields that it
    is computed from. `alias` names what other projects call it."""

    name: str
    kind: Kind
    unit: Unit
    labels: tuple[str, ...]
    meaning: str
    source: str
    alias: str = ""

    @property
    def prometheus_name(self) -> str:
        """The name by Prometheus' rules: underscores, the unit, and `_total` for a counter."""
        name = self.name.replace(".", "_")
        suffix = _SUFFIXES[self.unit]
        if suffix and not name.endswith(suffix):
            name += suffix
        return f"{name}_total" if self.kind is Kind.COUNTER else name


_SUFFIXES = {
    Unit.COUNT: "",
    Unit.BYTES: "_bytes",
    Unit.SECONDS: "_seconds",
    Unit.EPOCH: "_timestamp_seconds",
    Unit.RATIO: "_ratio",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One number of a series. `labels` are the values of its labels, in the series' order."""

    series: Series
    labels: tuple[str, ...]
    value: float

    def tags(self) -> dict[str, str]:
        """The values of the labels by name."""
        return dict(zip(self.series.labels, self.labels, strict=True))


def label_value(text: str) -> str:
    """Returns the text as a value that every receiver accepts unchanged: printable ASCII without separators.

    Other characters, and spaces at the beginning and at the end, become `%` and two hexadecimal digits for each byte of
    UTF-8. A long value is cut and gets a digest of the whole, so that different values stay different. An empty value becomes `none`.
    """
    safe = _UNSAFE.sub(lambda m: "".join(f"%{b:02X}" for b in m[0].encode("utf-8", "replace")), text)
    if len(safe) > MAX_LABEL_BYTES:
        digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
        safe = f"{safe[: MAX_LABEL_BYTES - 13]}~{digest}"
    return safe or "none"


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
