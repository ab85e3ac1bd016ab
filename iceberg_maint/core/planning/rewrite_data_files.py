"""Plans batches of explicit input files: of each operation on data, and of `rewrite_data_files`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import reduce
from typing import assert_never

from iceberg_maint.core.decisions.applicability import SPARK_4, RowTypes
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import UNPARTITIONED_KEY, Operation, PartitionKey
from iceberg_maint.core.model.reasons import Decision, PartitionDecision, Reason, Verdict
from iceberg_maint.core.model.table_state import LiveFile, TableState
from iceberg_maint.core.planning.batch_trials import BatchSize, limited, with_gain
from iceberg_maint.core.planning.convert_equality_deletes import plan_conversion
from iceberg_maint.core.planning.equality_delete_route import left_to_conversion, units
from iceberg_maint.core.planning.equality_deletes import (
    EqualityDeletes,
    LiveData,
    has_unsupported_key,
    memory_need,
    planned_deletes,
)
from iceberg_maint.core.planning.file_groups import (
    NO_EQUALITY_DELETES,
    Candidate,
    Rules,
    SortedGroup,
    applied_deletes,
    candidates,
    file_group,
    packed_groups,
    sorted_groups,
)
from iceberg_maint.core.planning.plan import Leftover, Plan, batch_at, make_plan
from iceberg_maint.core.planning.rewrite_position_delete_files import plan_position_deletes
from iceberg_maint.core.planning.row_writer import with_writers
from iceberg_maint.core.planning.work import FileGroup, PlannedLayout, RewriteDataFiles, RowWriter
from iceberg_maint.core.policy.data import Policy, WindowsPolicy


def partitions_to_read(
    operation: Operation, decision: Decision, measured: Measured
) -> frozenset[PartitionKey]:
    """Returns the partitions whose live files a plan of this decision needs.

    These are the due partitions. If deletes of an unpartitioned spec are live, these are also all partitions
    that equality deletes apply to: only all of them together show which of these deletes may be dropped.
    """
    due = frozenset(p.partition for p in decision.due())
    if operation is Operation.REWRITE_POSITION_DELETE_FILES:
        return due
    under = {key for key, health in measured.partitions.items() if health.applicable_equality_delete_files}
    everywhere = measured.partitions.get(UNPARTITIONED_KEY)
    touches = operation is Operation.CONVERT_EQUALITY_DELETES or not due.isdisjoint(under)
    if not due or not touches or everywhere is None or not everywhere.equality_delete_files:
        return due
    return due | under


def plan_operation(
    operation: Operation,
    state: TableState,
    decision: Decision,
    live_files: Iterable[LiveFile],
    policy: Policy,
    target_bytes: int,
    *,
    memory_correction: float = 1.0,
    readers: RowTypes = SPARK_4,
    limit: BatchSize | None = None,
    before_conversion: bool = False,
    rewritten: frozenset[str] = frozenset(),
    alone: frozenset[PartitionKey] = frozenset(),
) -> Plan:
    """Plans one operation on data for the partitions that its decision says RUN, in its order.

    `live_files` are those of `partitions_to_read` and all equality deletes of unpartitioned specs.
    `memory_correction` is the learned correction of the memory estimate for equality deletes. `readers` are the ways
    in which Spark reads rows. Batches that can be split are no larger than `limit`. It changes neither the
    choice of an operation for equality deletes nor what is too large. `before_conversion` is that of the `Step` of a
    rewrite, `rewritten` are the data files (paths) that such a rewrite replaces before a conversion. The partitions `alone`
    share no batch with others.
    """
    correction = memory_correction
    match operation:
        case Operation.REWRITE_DATA_FILES:
            return plan_rewrite(
                state,
                decision,
                live_files,
                policy,
                target_bytes,
                memory_correction=correction,
                readers=readers,
                limit=limit,
                before_conversion=before_conversion,
                alone=alone,
            )
        case Operation.CONVERT_EQUALITY_DELETES:
            return plan_conversion(
                state,
                decision,
                (f for f in live_files if f.path not in rewritten),
                policy,
                target_bytes,
                memory_correction=correction,
                limit=limit,
                alone=alone,
            )
        case Operation.REWRITE_POSITION_DELETE_FILES:
            return plan_position_deletes(
                state, decision, live_files, policy, target_bytes, limit=limit, alone=alone
            )
        case Operation.REWRITE_MANIFESTS | Operation.EXPIRE_SNAPSHOTS | Operation.REMOVE_ORPHAN_FILES:
            raise ValueError(f"{operation} works on the table as a whole: see plan_housekeeping")
        case _:
            assert_never(operation)


def plan_rewrite(
    state: TableState,
    decision: Decision,
    live_files: Iterable[LiveFile],
    policy: Policy,
    target_bytes: int,
    *,
    memory_correction: float = 1.0,
    readers: RowTypes = SPARK_4,
    limit: BatchSize | None = None,
    before_conversion: bool = False,
    alone: frozenset[PartitionKey] = frozenset(),
) -> Plan:
    """Returns the plan of `rewrite_data_files`; see `plan_operation`.

    Partitions whose equality deletes are to be converted are left whole to that operation. `before_conversion` their files
    that are due for other reasons are rewritten, if `columnar` writes them.
    """
    files = tuple(live_files)
    by_partition = candidates(state.specs, files)
    deletes = EqualityDeletes.of(state.specs, files)
    by_unit = units(decision, by_partition, deletes, state.key_types, policy, target_bytes)
    leftovers = [
        Leftover(p.partition, p.reason, bytes=p.candidate_bytes)
        for p in decision.partitions
        if p.verdict in (Verdict.DEFER, Verdict.REFUSE)
    ]
    groups: list[FileGroup] = []
    layouts: dict[str, PlannedLayout] = {}
    for due in decision.due():
        unit = by_unit.get(due.partition)
        every = by_partition.get(due.partition, ())
        in_order = plan_sorted(state, due, every, policy, target_bytes, decision.budget_bytes)
        if unit is not None and left_to_conversion(due, unit, decision):
            first: list[FileGroup] = []
            if before_conversion:
                to_sort = {f.path for g in in_order for f in g.group.files}
                unsorted = [c for c in every if c.file.path not in to_sort]
                first = groups_before_conversion(
                    state, due, unsorted, policy, target_bytes, decision.budget_bytes, readers, limit
                )
            groups += first
            taken = {f.path for g in first for f in g.files}
            own = [c.file.size_bytes for c in unit.files[due.partition] if c.file.path not in taken]
            leftovers.append(Leftover(due.partition, Reason.OTHER_OPERATION, len(own), sum(own)))
            continue
        layouts |= {f.path: g.layout for g in in_order for f in g.group.files}
        found, left = plan_groups(
            state,
            due,
            [c for c in every if c.file.path not in layouts],
            policy,
            target_bytes,
            decision.budget_bytes,
            decision.budget_reason,
            limit,
        )
        groups += [*(g.group for g in in_order), *found]
        leftovers += [one for one in left if not in_order or one.reason is not Reason.NO_GAIN]
    groups, cut = _within_budget(groups, decision.budget_bytes, decision.budget_reason)
    reasons = {p.partition: p.reason for p in decision.due()}
    by_path = {c.file.path: c for some in by_partition.values() for c in some}
    under = {path for path, c in by_path.items() if deletes.apply_to(c.file)}
    live = LiveData.of(files)
    batches = []
    written, unread = with_writers(
        state, groups, by_path, layouts, policy.rewrite_data_files, target_bytes, readers
    )
    for chunk, writer in _chunks(written, under, layouts, limited(policy.windows, limit), alone):
        paths = frozenset(f.path for g in chunk for f in g.files)
        planned = [layouts[g.files[0].path] for g in chunk if g.files[0].path in layouts]
        work = RewriteDataFiles(
            tuple(chunk),
            layout=reduce(PlannedLayout.plus, planned) if planned else None,
            applied_deletes=applied_deletes(by_path[p] for p in paths),
            writer=writer if writer.columnar or writer.reason else None,
        )
        marked = [by_path[p].file for p in sorted(paths & under)]
        if marked:
            applying = deletes.applying(marked)
            kept = live.needed_beside(applying, paths, state.specs)
            work = _with_deletes(work, state, applying, kept, marked, memory_correction)
        batch = batch_at(state, work, paths, target_bytes)
        batches.append(replace(batch, reasons=tuple(sorted({reasons[g.partition] for g in chunk}))))
    return make_plan(
        str(state.table),
        state.uuid,
        Operation.REWRITE_DATA_FILES,
        state.snapshot.snapshot_id if state.snapshot else None,
        tuple(batches),
        (*leftovers, *cut, *unread),
    )


def plan_sorted(
    state: TableState,
    due: PartitionDecision,
    found: Sequence[Candidate],
    policy: Policy,
    target_bytes: int,
    budget_bytes: int | None = None,
) -> list[SortedGroup]:
    """Returns the file groups of one partition to sort. No group exceeds the limits of a batch or the
    budget."""
    rules = Rules.of(due, policy.rewrite_data_files, target_bytes)
    most = _most_bytes(policy.windows)
    left_bytes = most if budget_bytes is None else min(most, budget_bytes)
    return sorted_groups(state, due.partition, found, rules, policy.layout, policy.windows, left_bytes)


def _most_bytes(windows: WindowsPolicy) -> int:
    caps = (windows.max_bytes_per_batch, windows.max_bytes_per_run, windows.max_bytes_per_hour)
    return min(cap for cap in caps if cap is not None)


def plan_groups(
    state: TableState,
    due: PartitionDecision,
    found: Sequence[Candidate],
    policy: Policy,
    target_bytes: int,
    budget_bytes: int | None = None,
    budget_reason: Reason = Reason.RUN_BUDGET,
    limit: BatchSize | None = None,
    rules: Rules | None = None,
) -> tuple[list[FileGroup], list[Leftover]]:
    """Returns the file groups of one partition. No group exceeds the limits of a batch or the budget, nor
    `limit` as far as a group of its size still gains something. `rules` select the files, by default those of the
    decision.

    The leftovers are files under equality deletes whose keys cannot be matched, files that alone exceed a cap
    of the policy and, for `budget_reason`, files that exceed the remaining budget.
    """
    rules = rules or Rules.of(due, policy.rewrite_data_files, target_bytes)
    windows = policy.windows
    most = _most_bytes(windows)
    left_bytes = most if budget_bytes is None else min(most, budget_bytes)
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
    packing = limited(
        windows,
        with_gain(limit, 10 * policy.rewrite_data_files.min_input_files, max(4 * target_bytes, 2 * largest)),
    )
    groups = [
        file_group(state, due.partition, spec_id, packed, rules)
        for spec_id, packed in packed_groups(
            by_spec, rules, packing, min(left_bytes, packing.max_bytes_per_batch)
        )
    ]
    leftovers = [
        Leftover(due.partition, reason, len(left), sum(c.file.size_bytes for c in left))
        for reason, left in (
            (budget_reason, later),
            (Reason.UNSUPPORTED_KEY, blocked),
            (Reason.FILE_TOO_LARGE, too_large),
        )
        if left
    ]
    if not groups and not leftovers:
        cramped = left_bytes < most and any(packed_groups(by_spec, rules, windows, most))
        leftovers.append(Leftover(due.partition, budget_reason if cramped else Reason.NO_GAIN))
    return groups, leftovers


def groups_before_conversion(
    state: TableState,
    due: PartitionDecision,
    found: Sequence[Candidate],
    policy: Policy,
    target_bytes: int,
    budget_bytes: int | None,
    readers: RowTypes,
    limit: BatchSize | None,
) -> list[FileGroup]:
    """Returns the file groups of one partition that are due without its equality deletes and that `columnar` writes:
    there the task applies the deletes. `native` would write a deletion vector for each file first."""
    rules = Rules.of(due, policy.rewrite_data_files, target_bytes)
    rules = replace(rules, reasons=rules.reasons - {Reason.EQUALITY_DELETES})
    groups, _ = plan_groups(state, due, found, policy, target_bytes, budget_bytes, limit=limit, rules=rules)
    by_path = {c.file.path: c for c in found}
    written, _ = with_writers(state, groups, by_path, (), policy.rewrite_data_files, target_bytes, readers)
    return [group for group, writer in written if writer.columnar]


def _unsupported(state: TableState, found: Sequence[Candidate]) -> EqualityDeletes:
    """Returns the deletes on these files whose keys cannot be matched."""
    if not found:
        return NO_EQUALITY_DELETES
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
    written: Iterable[tuple[FileGroup, RowWriter]],
    under: Collection[str],
    in_order: Collection[str],
    windows: WindowsPolicy,
    alone: Collection[PartitionKey],
) -> list[tuple[list[FileGroup], RowWriter]]:
    """Groups consecutive file groups into batches, each with the writer of its rows. File groups under equality
    deletes, file groups to sort, file groups of another writer, those of each partition of `alone`, and all others are in
    separate batches."""
    chunks: list[_Chunk] = []
    open_chunk: dict[tuple[bool, bool, RowWriter, PartitionKey | None], _Chunk] = {}
    for group, writer in written:
        is_under, is_sorted = any(f.path in under for f in group.files), group.files[0].path in in_order
        marked = is_under, is_sorted, writer, group.partition if group.partition in alone else None
        chunk = open_chunk.get(marked)
        if chunk is None or not chunk.add(group, windows):
            chunk = open_chunk[marked] = _Chunk(writer, group)
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


def _with_deletes(
    work: RewriteDataFiles,
    state: TableState,
    applying: Sequence[LiveFile],
    kept: frozenset[str],
    marked: Sequence[LiveFile],
    memory_correction: float,
) -> RewriteDataFiles:
    """Returns the work with these deletes applied to its files `marked`. It drops all of them except those in
    `kept` (paths), which other files need. The sequence numbers of the new files are not below those of the
    kept deletes."""
    rows = sum(f.record_count for f in marked)
    return replace(
        work,
        equality_deletes=planned_deletes(applying, kept, state.specs),
        memory=memory_need(applying, rows, state.key_types, memory_correction),
    )
