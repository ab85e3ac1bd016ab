"""Series: what a number is called, what it measures, and the samples of it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum

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
