"""Plan file groups and batches of `rewrite_data_files`.

Which files and groups are worth a rewrite follows Iceberg's `BinPackRewriteFilePlanner` and
`SizeBasedFileRewritePlanner` (1.12): files outside the desired size range or with too high a
delete ratio, packed to groups, groups kept when they have enough inputs, enough content, too much
content or too many deletes. A differential test holds the two against each other; where ours is
stricter on purpose, `docs/decisions/0004-where-our-planner-is-stricter.md` says why.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from iceberg_maint.core.binpack import pack
from iceberg_maint.core.candidate import Candidate, candidates
from iceberg_maint.core.health import Measured, SizeLimits
from iceberg_maint.core.ids import Operation
from iceberg_maint.core.judge import expected_output_files, size_limits, too_many_average_bytes
from iceberg_maint.core.partition import ALL
from iceberg_maint.core.plan import Batch, FileGroup, InputFile, Leftover, Plan, batch_id, make_plan
from iceberg_maint.core.policy import OutputSpec, Policy, RewriteDataFilesPolicy, WindowsPolicy
from iceberg_maint.core.reasons import Decision, PartitionDecision, Reason, Severity, Verdict
from iceberg_maint.core.state import LiveFile, TableState

NATIVE = "native"


@dataclass(frozen=True, slots=True)
class _Rules:
    """What one partition is due for, with the numbers the choice of files and groups needs."""

    due: PartitionDecision
    policy: RewriteDataFilesPolicy
    target_bytes: int
    limits: SizeLimits
    reasons: frozenset[Reason]

    @classmethod
    def of(cls, due: PartitionDecision, policy: RewriteDataFilesPolicy, target_bytes: int) -> _Rules:
        grave = frozenset(f.reason for f in due.findings if f.severity is Severity.ERROR)
        return cls(due, policy, target_bytes, size_limits(policy, target_bytes), grave)

    def chooses(self, candidate: Candidate) -> bool:
        """Whether the file itself asks for a rewrite (Iceberg `filterFiles`)."""
        size = candidate.file.size_bytes
        return (
            self.due.reason is Reason.FORCED
            or not self.limits.small_below_bytes <= size <= self.limits.large_above_bytes
            or (
                Reason.TOO_MANY_FILES in self.reasons
                and size < too_many_average_bytes(self.policy, self.target_bytes)
            )
            or self._deletes_ask(candidate)
        )

    def keeps(self, group: Sequence[Candidate]) -> bool:
        """Whether a group gains (Iceberg `filterFileGroups`) and makes progress: fewer files than
        before, deletes applied, or a large file split."""
        if self.due.reason is Reason.FORCED or any(self._deletes_ask(c) for c in group):
            return True
        size = sum(c.file.size_bytes for c in group)
        many = len(group) > 1
        gains = (
            (many and len(group) >= self.policy.min_input_files)
            or (many and size > self.target_bytes)
            or size > self.limits.large_above_bytes
            or (many and Reason.TOO_MANY_FILES in self.reasons)
        )
        fewer = expected_output_files(size, self.target_bytes, self.limits) < len(group)
        splits = any(c.file.size_bytes > self.limits.large_above_bytes for c in group)
        return gains and (fewer or splits)

    def _deletes_ask(self, candidate: Candidate) -> bool:
        if not candidate.marking_deletes:
            return False
        if Reason.DELETE_FILES in self.reasons:
            return True
        limit = self.policy.delete_ratio_act
        if limit is None:
            return False
        # Whom a partition-scoped delete file marks is not in metadata: take every file it may.
        return candidate.file_scoped_delete_ratio >= limit or (
            Reason.DELETE_RATIO in self.reasons and candidate.has_partition_scoped_deletes
        )


def partitions_to_read(operation: Operation, decision: Decision, measured: Measured) -> frozenset[str]:
    """The partitions whose live files a plan of this decision needs.

    Those that are due; where deletes of an unpartitioned spec are live, also every partition that
    equality deletes apply to: only all of them tell which of these deletes may be dropped.
    """
    due = frozenset(p.partition for p in decision.due())
    under = {key for key, health in measured.partitions.items() if health.applicable_equality_delete_files}
    everywhere = measured.partitions.get(ALL)
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
) -> Plan:
    """The plan of one operation on data for the partitions its decision says RUN, in its order.

    `live_files` are those of `partitions_to_read` and all equality deletes of unpartitioned specs;
    `memory_correction` is what is learned of the memory that applying equality deletes takes.
    """
    if operation is Operation.CONVERT_EQUALITY_DELETES:
        leftovers = tuple(Leftover(p.partition, Reason.OTHER_OPERATION) for p in decision.due())
        snapshot_id = state.snapshot.snapshot_id if state.snapshot else None
        return make_plan(str(state.table), state.uuid, operation, snapshot_id, (), leftovers)
    return plan_rewrite(state, decision, live_files, policy, target_bytes)


def plan_rewrite(
    state: TableState,
    decision: Decision,
    live_files: Iterable[LiveFile],
    policy: Policy,
    target_bytes: int,
) -> Plan:
    """The plan for the partitions the decision says RUN, in its order.

    `live_files` are the live files of these partitions and the global equality deletes.
    """
    by_partition = candidates(state.specs, live_files)
    leftovers = [
        Leftover(p.partition, p.reason, bytes=p.candidate_bytes)
        for p in decision.partitions
        if p.verdict in (Verdict.DEFER, Verdict.REFUSE)
    ]
    groups: list[FileGroup] = []
    for due in decision.due():
        found, left = plan_groups(
            state,
            due,
            by_partition.get(due.partition, ()),
            policy,
            target_bytes,
            decision.budget_bytes,
            decision.budget_reason,
        )
        groups += found
        leftovers += left
    groups, cut = _within_budget(groups, decision.budget_bytes, decision.budget_reason)
    reasons = {p.partition: p.reason for p in decision.due()}
    batches = tuple(
        _batch(state, tuple(chunk), target_bytes, reasons) for chunk in _chunks(groups, policy.windows)
    )
    return make_plan(
        str(state.table),
        state.uuid,
        Operation.REWRITE_DATA_FILES,
        state.snapshot.snapshot_id if state.snapshot else None,
        batches,
        (*leftovers, *cut),
    )


def plan_groups(
    state: TableState,
    due: PartitionDecision,
    found: Sequence[Candidate],
    policy: Policy,
    target_bytes: int,
    budget_bytes: int | None = None,
    budget_reason: Reason = Reason.RUN_BUDGET,
) -> tuple[list[FileGroup], list[Leftover]]:
    """File groups of one partition, none larger than a batch or the budget may be.

    Left over are files under equality deletes, files that alone exceed a cap of policy and, for
    `budget_reason`, those that exceed what is left of the budget now.
    """
    rules = _Rules.of(due, policy.rewrite_data_files, target_bytes)
    windows = policy.windows
    caps = (windows.max_bytes_per_batch, windows.max_bytes_per_run, windows.max_bytes_per_hour)
    most = min(cap for cap in caps if cap is not None)
    left_bytes = most if budget_bytes is None else min(most, budget_bytes)
    by_spec: dict[int, list[Candidate]] = defaultdict(list)
    blocked: list[Candidate] = []
    too_large: list[Candidate] = []
    later: list[Candidate] = []
    for candidate in found:
        if candidate.equality_deletes:
            blocked.append(candidate)
        elif not rules.chooses(candidate):
            continue
        elif candidate.file.size_bytes > most:
            too_large.append(candidate)
        elif candidate.file.size_bytes > left_bytes:
            later.append(candidate)
        else:
            by_spec[candidate.file.spec_id].append(candidate)
    groups = [
        _group(state, due.partition, spec_id, packed, rules)
        for spec_id, packed in _packed(by_spec, rules, windows, left_bytes)
    ]
    leftovers = [
        Leftover(due.partition, reason, len(left), sum(c.file.size_bytes for c in left))
        for reason, left in (
            (budget_reason, later),
            (Reason.EQUALITY_DELETES, blocked),
            (Reason.FILE_TOO_LARGE, too_large),
        )
        if left
    ]
    if not groups and not leftovers:
        cramped = left_bytes < most and any(_packed(by_spec, rules, windows, most))
        leftovers.append(Leftover(due.partition, budget_reason if cramped else Reason.NO_GAIN))
    return groups, leftovers


def _packed(
    by_spec: Mapping[int, Sequence[Candidate]], rules: _Rules, windows: WindowsPolicy, most_bytes: int
) -> Iterator[tuple[int, Sequence[Candidate]]]:
    """The groups worth a rewrite, each with its spec, none above these bytes."""
    cap = min(most_bytes, rules.policy.max_group_bytes)
    for spec_id, chosen in sorted(by_spec.items()):
        for packed in pack(chosen, cap, lambda c: c.file.size_bytes, windows.max_files_per_batch):
            if rules.keeps(packed):
                yield spec_id, packed


def _group(
    state: TableState, partition: str, spec_id: int, chosen: Sequence[Candidate], rules: _Rules
) -> FileGroup:
    moves = rules.policy.output_spec is OutputSpec.CURRENT
    size = sum(c.file.size_bytes for c in chosen)
    return FileGroup(
        partition=partition,
        spec_id=spec_id,
        output_spec_id=state.current_spec_id if moves else spec_id,
        files=tuple(
            InputFile(
                path=c.file.path,
                size_bytes=c.file.size_bytes,
                record_count=c.file.record_count,
                data_sequence_number=c.file.data_sequence_number,
                delete_files=tuple(sorted({d.path for d in c.position_deletes})),
            )
            for c in chosen
        ),
        expected_output_files=expected_output_files(size, rules.target_bytes, rules.limits),
    )


def _within_budget(
    groups: Iterable[FileGroup], budget_bytes: int | None, reason: Reason
) -> tuple[list[FileGroup], list[Leftover]]:
    """The groups that fit, in order, and per partition what did not."""
    kept: list[FileGroup] = []
    cut: dict[str, list[FileGroup]] = defaultdict(list)
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


def _chunks(groups: Iterable[FileGroup], windows: WindowsPolicy) -> list[list[FileGroup]]:
    """Consecutive groups that one batch may hold together."""
    chunks: list[list[FileGroup]] = []
    for group in groups:
        joined = [*chunks[-1], group] if chunks else []
        fits = (
            len({g.partition for g in joined}) <= windows.max_partitions_per_batch
            and sum(len(g.files) for g in joined) <= windows.max_files_per_batch
            and sum(g.input_bytes for g in joined) <= windows.max_bytes_per_batch
        )
        if joined and fits:
            chunks[-1] = joined
        else:
            chunks.append([group])
    return chunks


def _batch(
    state: TableState, groups: tuple[FileGroup, ...], target_bytes: int, reasons: dict[str, Reason]
) -> Batch:
    if state.snapshot is None:
        raise ValueError("an empty table has no batches")
    paths = frozenset(f.path for g in groups for f in g.files)
    operation = Operation.REWRITE_DATA_FILES
    return Batch(
        batch_id=batch_id(state.uuid, operation, state.snapshot.snapshot_id, paths),
        table=str(state.table),
        table_uuid=state.uuid,
        operation=operation,
        strategy=NATIVE,
        format_version=state.format_version,
        snapshot_id=state.snapshot.snapshot_id,
        snapshot_sequence_number=state.snapshot.sequence_number,
        schema_id=state.schema_id,
        groups=groups,
        target_file_size_bytes=target_bytes,
        reasons=tuple(sorted({reasons[g.partition] for g in groups})),
    )
