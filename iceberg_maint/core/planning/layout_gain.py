"""What a sort is planned to gain, and what it gained by the bounds of the files it wrote."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from iceberg_maint.core.health.overlap import Overlap, SortFile, overlap_of
from iceberg_maint.core.model.column_bounds import range_of
from iceberg_maint.core.model.sort_order import LayoutOrder


@dataclass(frozen=True, slots=True)
class PlannedLayout:
    """The order that a batch writes its files in; how its inputs overlap among themselves, group by
    group, and how its outputs are predicted to."""

    order: LayoutOrder
    before: Overlap
    predicted: Overlap

    def plus(self, other: PlannedLayout) -> PlannedLayout:
        """Both groups' together; their order is the same."""
        return PlannedLayout(self.order, self.before.plus(other.before), self.predicted.plus(other.predicted))


@dataclass(frozen=True, slots=True)
class LayoutGain:
    """Overlap depths of a batch's files among themselves, that is files that a look-up by the sort
    column reads of them: before, as predicted, and as measured of what was written."""

    depth_before: float
    depth_predicted: float
    depth_measured: float

    @property
    def is_gain(self) -> bool:
        """Whether the files overlap less than before."""
        return self.depth_measured < self.depth_before


def layout_gain(planned: PlannedLayout, written: Iterable[tuple[int, str]]) -> LayoutGain:
    """From the files written: each the number of its group and its content-file JSON."""
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
    """Iceberg's `ContentFileParser`: two lists, the values in hexadecimal."""
    if node is None:
        return {}
    return {key: bytes.fromhex(value) for key, value in zip(node["keys"], node["values"], strict=True)}
