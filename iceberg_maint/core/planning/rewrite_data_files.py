"""Plans batches of `rewrite_data_files`: file groups to pack or to sort, with the deletes that apply to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import reduce

from iceberg_maint.core.model.ids import Operation, PartitionKey
from iceberg_maint.core.model.reasons import PartitionDecision, Reason
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.planning.batch_trials import limited, with_gain
from iceberg_maint.core.planning.equality_delete_route import left_to_conversion, units
from iceberg_maint.core.planning.equality_deletes import (
    EqualityDeletes,
    LiveData,
    has_unsupported_key,
    memory_need,
    planned_deletes,
)
from iceberg_maint.core.planning.file_groups import (
    Candidate,
    PlanInputs,
    Rules,
    applied_deletes,
    candidates,
    file_group,
    packed_groups,
    sorted_groups,
)
from iceberg_maint.core.planning.plan import Leftover, Plan, batch_at, leftovers_of, plan_at
from iceberg_maint.core.planning.row_writer import with_writers
from iceberg_maint.core.planning.work import FileGroup, PlannedLayout, RewriteDataFiles, RowWriter
from iceberg_maint.core.policy.runs import WindowsPolicy


def plan_rewrite(inputs: PlanInputs) -> Plan:
    """Plans the partitions that the decision says RUN, in its order.

    Partitions whose equality deletes are to be converted are left whole to that operation. `before_conversion` their files
    that are due for other reasons are rewritten, if `columnar` writes them.
    """
    state, decision, files = inputs.state, inputs.decision, inputs.live_files
    by_partition = candidates(state.specs, files)
    deletes = EqualityDeletes.of(state.specs, files)
    by_unit = units(inputs, by_partition, deletes)
    leftovers = leftovers_of(decision)
    groups: list[FileGroup] = []
    layouts: dict[str, PlannedLayout] = {}
    for due in decision.due():
        unit = by_unit.get(due.partition)
        every = by_partition.get(due.partition, ())
        in_order = sorted_groups(inputs, due, every)
        if unit is not None and left_to_conversion(due, unit, decision):
            first: list[FileGroup] = []
            if inputs.before_conversion:
                to_sort = {f.path for g in in_order for f in g.group.files}
                unsorted = [c for c in every if c.file.path not in to_sort]
                first = groups_before_conversion(inputs, due, unsorted)
            groups += first
            taken = {f.path for g in first for f in g.files}
            own = [c.file.size_bytes for c in unit.files[due.partition] if c.file.path not in taken]
            leftovers.append(Leftover(due.partition, Reason.OTHER_OPERATION, len(own), sum(own)))
            continue
        layouts |= {f.path: g.layout for g in in_order for f in g.group.files}
        unsorted = [c for c in every if c.file.path not in layouts]
        found, left = plan_groups(inputs, Rules.of(due, inputs), unsorted)
        groups += [*(g.group for g in in_order), *found]
        leftovers += [one for one in left if not in_order or one.reason is not Reason.NO_GAIN]
    groups, cut = _within_budget(groups, decision.budget_bytes, decision.budget_reason)
    reasons = {p.partition: p.reason for p in decision.due()}
    by_path = {c.file.path: c for some in by_partition.values() for c in some}
    under = {path for path, c in by_path.items() if deletes.apply_to(c.file)}
    live = LiveData.of(files)
    batches = []
    written, unread = with_writers(inputs, groups, by_path, layouts)
    for chunk, writer in _chunks(inputs, written, under, layouts):
        paths = frozenset(f.path for g in chunk for f in g.files)
        planned = [layouts[g.files[0].path] for g in chunk if g.files[0].path in layouts]
        work = RewriteDataFiles(
            tuple(chunk),
            layout=reduce(PlannedLayout.plus, planned) if planned else None,
            applied_deletes=applied_deletes(by_path[p] for p in paths),
            writer=writer if writer.columnar or writer.reason else None,
        )
        under_deletes = [by_path[p].file for p in sorted(paths & under)]
        if under_deletes:
            # The commit drops the deletes that no other file needs. The sequence numbers of the new files are not below those of the
            # kept ones.
            applying = deletes.applying(under_deletes)
            kept = live.needed_beside(applying, paths, state.specs)
            rows, correction = sum(f.record_count for f in under_deletes), inputs.limits.memory_correction
            work = replace(
                work,
                equality_deletes=planned_deletes(applying, kept, state.specs),
                memory=memory_need(applying, rows, state.key_types, correction),
            )
        batch = batch_at(state, work, paths, inputs.target_bytes)
        batches.append(replace(batch, reasons=tuple(sorted({reasons[g.partition] for g in chunk}))))
    return plan_at(state, Operation.REWRITE_DATA_FILES, batches, (*leftovers, *cut, *unread))


def plan_groups(
    inputs: PlanInputs, rules: Rules, found: Sequence[Candidate]
) -> tuple[list[FileGroup], list[Leftover]]:
    """Returns the file groups of one partition. No group exceeds the limits of a batch or the budget, nor
    the batch size of the limits as far as a group of its size still gains something. `rules` select the files.

    The leftovers are files under equality deletes whose keys cannot be matched, files that alone exceed a cap
    of the policy and files that exceed the remaining budget.
    """
    state, windows, partition = inputs.state, inputs.policy.windows, rules.due.partition
    most, left_bytes = inputs.largest_group_bytes, inputs.left_bytes
    budget_reason = inputs.decision.budget_reason
    unsupported = _unsupported(state, found)
    by_spec: dict[int, list[Candidate]] = defaultdict(list)
    blocked: list[Candidate] = []
    too_large: list[Candidate] = []
    later: list[Candidate] = []
    for candidate in found:
        if unsupported.apply_to(candidate.file):
            blocked.append(candidate)
        elif not rules.selects_file(candidate):
            continue
        elif candidate.file.size_bytes > most:
            too_large.append(candidate)
        elif candidate.file.size_bytes > left_bytes:
            later.append(candidate)
        else:
            by_spec[candidate.file.spec_id].append(candidate)
    largest = max((c.file.size_bytes for some in by_spec.values() for c in some), default=0)
    least_gain = 10 * rules.policy.min_input_files, max(4 * inputs.target_bytes, 2 * largest)
    packing = limited(windows, with_gain(inputs.limits.size, *least_gain))
    groups = [
        file_group(state, spec_id, packed, rules)
        for spec_id, packed in packed_groups(
            by_spec, rules, packing, min(left_bytes, packing.max_bytes_per_batch)
        )
    ]
    leftovers = [
        Leftover(partition, reason, len(left), sum(c.file.size_bytes for c in left))
        for reason, left in (
            (budget_reason, later),
            (Reason.UNSUPPORTED_KEY, blocked),
            (Reason.FILE_TOO_LARGE, too_large),
        )
        if left
    ]
    if not groups and not leftovers:
        cramped = left_bytes < most and any(packed_groups(by_spec, rules, windows, most))
        leftovers.append(Leftover(partition, budget_reason if cramped else Reason.NO_GAIN))
    return groups, leftovers


def groups_before_conversion(
    inputs: PlanInputs, due: PartitionDecision, found: Sequence[Candidate]
) -> list[FileGroup]:
    """Returns the file groups of one partition that are due without its equality deletes and that `columnar` writes:
    there the task applies the deletes. `native` would write a deletion vector for each file first."""
    groups, _ = plan_groups(inputs, Rules.of(due, inputs).without_equality_deletes(), found)
    written, _ = with_writers(inputs, groups, {c.file.path: c for c in found}, ())
    return [group for group, writer in written if writer.columnar]


def _unsupported(state: TableState, found: Sequence[Candidate]) -> EqualityDeletes:
    """Returns the deletes on these files whose keys cannot be matched."""
    if not found:
        return EqualityDeletes((), {})
    applying = found[0].all_equality_deletes.applying(c.file for c in found)
    return EqualityDeletes.of(state.specs, (d for d in applying if has_unsupported_key(d, state.key_types)))


def _within_budget(
    groups: Iterable[FileGroup], budget_bytes: int | None, reason: Reason
) -> tuple[list[FileGroup], list[Leftover]]:
    """Returns the groups that fit, in order, and for each partition what did not fit."""
    kept: list[FileGroup] = []
    cut: dict[PartitionKey, list[FileGroup]] = defaultdict(list)
    left = budget_bytes
    for group in groups:
        if left is not None and group.input_bytes > left:
            cut[group.partition].append(group)
            continue
        left = None if left is None else left - group.input_bytes
        kept.append(group)
    return kept, [
        Leftover(partition, reason, sum(len(g.files) for g in of), sum(g.input_bytes for g in of))
        for partition, of in cut.items()
    ]


def _chunks(
    inputs: PlanInputs,
    written: Iterable[tuple[FileGroup, RowWriter]],
    under: Collection[str],
    in_order: Collection[str],
) -> list[tuple[list[FileGroup], RowWriter]]:
    """Groups consecutive file groups into batches, each with the writer of its rows. File groups under equality
    deletes, file groups to sort, file groups of another writer, those of each partition that is `alone`, and all others are in
    separate batches."""
    windows, alone = inputs.batch_windows, inputs.limits.alone
    chunks: list[_Chunk] = []
    open_chunk: dict[tuple[bool, bool, RowWriter, PartitionKey | None], _Chunk] = {}
    for group, writer in written:
        is_under, is_sorted = any(f.path in under for f in group.files), group.files[0].path in in_order
        batch_key = is_under, is_sorted, writer, group.partition if group.partition in alone else None
        chunk = open_chunk.get(batch_key)
        if chunk is None or not chunk.add(group, windows):
            chunk = open_chunk[batch_key] = _Chunk(writer, group)
            chunks.append(chunk)
    return [(chunk.groups, chunk.writer) for chunk in chunks]


class _Chunk:
    """The file groups of one batch, and their sums: a batch may have thousands of groups."""

    def __init__(self, writer: RowWriter, first: FileGroup) -> None:
        self.writer, self.groups = writer, [first]
        self._partitions, self._files, self._bytes = {first.partition}, len(first.files), first.input_bytes

    def add(self, group: FileGroup, windows: WindowsPolicy) -> bool:
        """Adds the group if the batch stays within its limits, and returns whether it does."""
        partitions = len(self._partitions) + (group.partition not in self._partitions)
        files, input_bytes = self._files + len(group.files), self._bytes + group.input_bytes
        most_partitions = (
            windows.partitions_per_columnar_batch(input_bytes)
            if self.writer.columnar
            else windows.partitions_per_batch
        )
        if (
            partitions > most_partitions
            or files > windows.max_files_per_batch
            or input_bytes > windows.max_bytes_per_batch
        ):
            return False
        self.groups.append(group)
        self._partitions.add(group.partition)
        self._files, self._bytes = files, input_bytes
        return True
