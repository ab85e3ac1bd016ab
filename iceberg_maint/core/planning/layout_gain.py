"""The gain of a sort: planned, and measured from the bounds of the files that it wrote."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from iceberg_maint.core.health.layout import Overlap, SortFile, overlap_of
from iceberg_maint.core.model.columns import range_of
from iceberg_maint.core.model.table_state import LayoutOrder


@dataclass(frozen=True, slots=True)
class PlannedLayout:
    """The order in which a batch writes its files, the overlap of its inputs within each group, and the
    predicted overlap of its outputs."""

    order: LayoutOrder
    before: Overlap
    predicted: Overlap

    def plus(self, other: PlannedLayout) -> PlannedLayout:
        """Returns the sum of two groups of the same order."""
        return PlannedLayout(self.order, self.before.plus(other.before), self.predicted.plus(other.predicted))


@dataclass(frozen=True, slots=True)
class LayoutGain:
    """Overlap depths of a batch's files: the number of these files that a look-up by the sort column reads.
    They are the depth before, the predicted depth, and the depth measured from the written files."""

    depth_before: float
    depth_predicted: float
    depth_measured: float

    @property
    def is_gain(self) -> bool:
        """Whether the files overlap less than before."""
        return self.depth_measured < self.depth_before


def layout_gain(planned: PlannedLayout, written: Iterable[tuple[int, str]]) -> LayoutGain:
    """Measures the gain from the written files, each given by its group number and its content-file JSON."""
    by_group: dict[int, list[SortFile]] = {}
    for group, content in written:
        by_group.setdefault(group, []).append(_file(planned.order, json.loads(content)))
    measured = Overlap()
    for files in by_group.values():
        measured = measured.plus(overlap_of(files))
    return LayoutGain(planned.before.depth, planned.predicted.depth, measured.depth)


def _file(order: LayoutOrder, content: Mapping[str, Any]) -> SortFile:
    lower, upper = (_bounds(content.get(name)) for name in ("lower-bounds", "upper-bounds"))
    ranges = (range_of(c.type, lower.get(c.field_id), upper.get(c.field_id)) for c in order.measured)
    return SortFile(tuple(ranges), int(content["file-size-in-bytes"]))


def _bounds(node: Mapping[str, Any] | None) -> dict[int, bytes]:
    """Reads the form of Iceberg's `ContentFileParser`: two lists, the values in hexadecimal."""
    if node is None:
        return {}
    return {key: bytes.fromhex(value) for key, value in zip(node["keys"], node["values"], strict=True)}
