"""Sorting: which files of a partition are sorted again after its layout has drifted, as file groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from iceberg_maint.core.health.overlap import SortFile, SortLimits, choose
from iceberg_maint.core.health.thresholds import expected_output_files
from iceberg_maint.core.model.ids import PartitionKey
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.planning.candidates import Candidate
from iceberg_maint.core.planning.file_groups import Rules, file_group
from iceberg_maint.core.planning.inputs import FileGroup
from iceberg_maint.core.planning.layout_gain import PlannedLayout
from iceberg_maint.core.policy.data import LayoutPolicy, OutputSpec, WindowsPolicy


@dataclass(frozen=True, slots=True)
class SortedGroup:
    """A file group to sort, and the gain it should have."""

    group: FileGroup
    layout: PlannedLayout


def sorted_groups(
    state: TableState,
    partition: PartitionKey,
    found: Sequence[Candidate],
    rules: Rules,
    layout: LayoutPolicy,
    windows: WindowsPolicy,
    most_bytes: int,
) -> list[SortedGroup]:
    """Returns the files that cause the overlap depth of a partition due for its layout, in groups of at most
    these bytes. Returns no group for a partition that is not due for it.

    Files under equality deletes are left to the rewrite that applies these deletes. Files that the policy
    moves to another spec are left to the rewrite that moves them.
    """
    order = state.order
    if order is None or Reason.LAYOUT not in rules.reasons:
        return []
    moves = rules.policy.output_spec is OutputSpec.CURRENT
    by_spec: dict[int, list[Candidate]] = defaultdict(list)
    for candidate in found:
        by_spec[candidate.file.spec_id].append(candidate)
    limits = SortLimits(
        goal=layout.overlap_depth_warn or layout.overlap_depth_act or 1.0,
        min_gain_ratio=layout.min_gain_ratio,
        max_group_bytes=min(most_bytes, rules.policy.max_group_bytes),
        max_group_files=windows.max_files_per_batch,
        output_files=_output_files(rules),
    )
    result = []
    for spec_id, of_spec in sorted(by_spec.items()):
        if moves and spec_id != state.current_spec_id:
            continue
        files = [
            SortFile(
                c.file.ranges, c.file.size_bytes, c.under_equality_deletes or c.file.size_bytes > most_bytes
            )
            for c in of_spec
        ]
        for group in choose(files, limits).groups:
            chosen = [of_spec[i] for i in group.files]
            planned = PlannedLayout(order, group.before, group.after)
            result.append(SortedGroup(file_group(state, partition, spec_id, chosen, rules), planned))
    return result


def _output_files(rules: Rules) -> Callable[[int], int]:
    return lambda size_bytes: expected_output_files(size_bytes, rules.target_bytes, rules.limits)
