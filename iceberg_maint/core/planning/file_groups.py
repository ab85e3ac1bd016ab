"""File groups of one partition: which deletes apply to its files, which files need a rewrite or a sort, how they are packed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from iceberg_maint.core.decisions.applicability import SPARK_4, RowTypes
from iceberg_maint.core.health.layout import SortFile, SortLimits, choose, pack
from iceberg_maint.core.health.metrics import SizeLimits
from iceberg_maint.core.health.thresholds import (
    DANGLING,
    expected_output_files,
    size_limits,
    too_many_average_bytes,
)
from iceberg_maint.core.model.ids import PartitionKey
from iceberg_maint.core.model.partition_key import PartitionSpec
from iceberg_maint.core.model.reasons import Decision, PartitionDecision, Reason, Severity
from iceberg_maint.core.model.table_state import (
    FileKind,
    LiveFile,
    Scope,
    TableState,
    position_delete_reaches,
    scope_of,
)
from iceberg_maint.core.planning.batch_trials import BatchSize, limited
from iceberg_maint.core.planning.equality_deletes import EqualityDeletes
from iceberg_maint.core.planning.work import FileGroup, InputFile, PlannedLayout, PositionDeleteFile
from iceberg_maint.core.policy.data import OutputSpec, Policy, RewriteDataFilesPolicy
from iceberg_maint.core.policy.runs import WindowsPolicy


class AppliedDeletes:
    """The position delete files and deletion vectors of a plan, by the data files that name them."""

    def __init__(self, deletes: Iterable[PositionDeleteFile]) -> None:
        self._by_path: dict[str, list[PositionDeleteFile]] = defaultdict(list)
        for delete in deletes:
            self._by_path[delete.path].append(delete)

    def of_file(self, file: InputFile) -> tuple[PositionDeleteFile, ...]:
        """Returns the deletes of a file, each once. Several deletion vectors share a path: those of other data files are left
        out."""
        return tuple(
            delete
            for path in dict.fromkeys(file.delete_files)
            for delete in self._by_path.get(path, ())
            if delete.referenced_data_file in (None, file.path)
        )


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What earlier runs and the session say about the batches of a plan.

    Batches that can be split are no larger than `size`. It changes neither the choice of an operation for equality
    deletes nor what is too large. The partitions `alone` share no batch with others. `memory_correction` is the learned
    correction of the memory estimate for equality deletes. `readers` are the ways in which Spark reads rows.
    """

    size: BatchSize | None = None
    alone: frozenset[PartitionKey] = frozenset()
    memory_correction: float = 1.0
    readers: RowTypes = SPARK_4


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """What the plan of one operation on data follows from.

    `live_files` are those of `partitions_to_read` and all equality deletes of unpartitioned specs. `before_conversion`
    is that of the `Step` of a rewrite. `rewritten` are the data files (paths) that such a rewrite replaces before a conversion.
    """

    state: TableState
    decision: Decision
    live_files: Sequence[LiveFile]
    policy: Policy
    target_bytes: int
    limits: BatchLimits = BatchLimits()
    before_conversion: bool = False
    rewritten: frozenset[str] = frozenset()

    @property
    def batch_windows(self) -> WindowsPolicy:
        """The windows of the policy, with the batch size of the limits."""
        return limited(self.policy.windows, self.limits.size)

    @property
    def largest_group_bytes(self) -> int:
        """The most bytes of a file group: those of a batch, of a run and of an hour."""
        windows = self.policy.windows
        return least(windows.max_bytes_per_batch, windows.max_bytes_per_run, windows.max_bytes_per_hour)

    @property
    def left_bytes(self) -> int:
        """The most bytes of a file group within the budget that is left."""
        return least(self.largest_group_bytes, self.decision.budget_bytes)


def least(*caps: int | None) -> int:
    """Returns the smallest of these caps; None is no cap."""
    return min(cap for cap in caps if cap is not None)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A live data file with the deletes that apply to it at the pinned snapshot.

    `position_deletes` are position delete files and deletion vectors. `all_equality_deletes` are those of the
    table: one shared value, because the pairs of files and deletes would be too many.
    """

    file: LiveFile
    position_deletes: tuple[LiveFile, ...]
    all_equality_deletes: EqualityDeletes

    @property
    def equality_deletes(self) -> tuple[LiveFile, ...]:
        """The equality deletes that apply to the file, lowest data sequence number first."""
        return self.all_equality_deletes.applying((self.file,))

    @property
    def under_equality_deletes(self) -> bool:
        """Whether an equality delete applies to the file."""
        return self.all_equality_deletes.apply_to(self.file)

    @property
    def file_scoped_delete_ratio(self) -> float:
        """The share of the file's rows that deletes which name the file delete (Iceberg's
        `tooHighDeleteRatio`)."""
        deleted = sum(d.record_count for d in self.position_deletes if d.referenced_data_file)
        return min(deleted, self.file.record_count) / max(1, self.file.record_count)

    @property
    def naming_deletes(self) -> tuple[LiveFile, ...]:
        """The position deletes that may name the file. One that is older than the commit of the data file cannot: it
        applies by sequence number if a rewrite kept that number, but it names only files that existed."""
        added = self.file.file_sequence_number or 0
        return tuple(d for d in self.position_deletes if d.data_sequence_number >= added)

    @property
    def has_partition_scoped_deletes(self) -> bool:
        """Whether a position delete file of several data files may name this one."""
        return any(d.referenced_data_file is None for d in self.naming_deletes)


def candidates(
    specs: Mapping[int, PartitionSpec], live_files: Iterable[LiveFile]
) -> dict[PartitionKey, tuple[Candidate, ...]]:
    """Returns the data files by partition key, in the given order, each with the deletes that apply to it by
    the rule of `core.model.table_state`."""
    files = tuple(live_files)
    equality = EqualityDeletes.of(specs, files)
    by_path: dict[str, list[LiveFile]] = defaultdict(list)
    by_scope: dict[Scope, list[LiveFile]] = defaultdict(list)
    for file in files:
        if file.kind in (FileKind.DATA, FileKind.EQUALITY_DELETES):
            continue
        if file.referenced_data_file is not None:
            by_path[file.referenced_data_file].append(file)
        else:
            by_scope[scope_of(file)].append(file)
    result: dict[PartitionKey, list[Candidate]] = defaultdict(list)
    for file in files:
        if file.kind is not FileKind.DATA:
            continue
        named = by_path.get(file.path, [])
        # A deletion vector replaces all earlier position deletes of its file.
        positional = [d for d in named if d.kind is FileKind.DELETION_VECTOR] or [
            d
            for d in (*named, *by_scope.get(scope_of(file), ()))
            if position_delete_reaches(d.data_sequence_number, file.data_sequence_number)
        ]
        result[file.partition].append(Candidate(file, tuple(positional), equality))
    return {key: tuple(found) for key, found in result.items()}


@dataclass(frozen=True, slots=True)
class Rules:
    """What one partition is due for, with the numbers that select files and groups."""

    due: PartitionDecision
    policy: RewriteDataFilesPolicy
    target_bytes: int
    limits: SizeLimits
    reasons: frozenset[Reason]

    @classmethod
    def of(cls, due: PartitionDecision, inputs: PlanInputs) -> Rules:
        """Returns the rules for a due partition."""
        policy, target_bytes = inputs.policy.rewrite_data_files, inputs.target_bytes
        grave = frozenset(
            f.reason for f in due.findings if f.severity is Severity.ERROR and f.metric != DANGLING
        )
        return cls(due, policy, target_bytes, size_limits(policy, target_bytes), grave)

    def without_equality_deletes(self) -> Rules:
        """Returns the rules for what the partition is due even without equality deletes."""
        return replace(self, reasons=self.reasons - {Reason.EQUALITY_DELETES})

    def selects_file(self, candidate: Candidate) -> bool:
        """Whether the file needs a rewrite (Iceberg `filterFiles`)."""
        size = candidate.file.size_bytes
        return (
            self.due.reason is Reason.FORCED
            or not self.limits.small_below_bytes <= size <= self.limits.large_above_bytes
            or (
                Reason.TOO_MANY_FILES in self.reasons
                and size < too_many_average_bytes(self.policy, self.target_bytes)
            )
            or self._deletes_ask(candidate)
            or self._equality_deletes_ask(candidate)
        )

    def keeps_group(self, group: Sequence[Candidate]) -> bool:
        """Whether a rewrite of the group gains (Iceberg `filterFileGroups`) and makes progress: fewer files
        than before, deletes applied, or a large file split."""
        if self.due.reason is Reason.FORCED:
            return True
        if any(self._deletes_ask(c) or self._equality_deletes_ask(c) for c in group):
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
        if not candidate.naming_deletes:
            return False
        if Reason.DELETE_FILES in self.reasons:
            return True
        limit = self.policy.delete_ratio_act
        if limit is None:
            return False
        # The metadata does not say which files a partition-scoped delete file names: every file that it may name is a
        # candidate.
        return candidate.file_scoped_delete_ratio >= limit or (
            Reason.DELETE_RATIO in self.reasons and candidate.has_partition_scoped_deletes
        )

    def _equality_deletes_ask(self, candidate: Candidate) -> bool:
        return Reason.EQUALITY_DELETES in self.reasons and candidate.under_equality_deletes


def packed_groups(
    by_spec: Mapping[int, Sequence[Candidate]], rules: Rules, windows: WindowsPolicy, most_bytes: int
) -> Iterator[tuple[int, Sequence[Candidate]]]:
    """Returns the groups that are worth a rewrite, each with its spec. No group exceeds these bytes."""
    cap = min(most_bytes, rules.policy.max_group_bytes)
    for spec_id, chosen in sorted(by_spec.items()):
        for packed in pack(chosen, cap, lambda c: c.file.size_bytes, windows.max_files_per_batch):
            if rules.keeps_group(packed):
                yield spec_id, packed


def file_group(state: TableState, spec_id: int, chosen: Sequence[Candidate], rules: Rules) -> FileGroup:
    """Returns the group of these files as a plan contains it."""
    moves = rules.policy.output_spec is OutputSpec.CURRENT
    size = sum(c.file.size_bytes for c in chosen)
    return FileGroup(
        partition=rules.due.partition,
        spec_id=spec_id,
        output_spec_id=state.current_spec_id if moves else spec_id,
        files=tuple(map(input_file, chosen)),
        expected_output_files=expected_output_files(size, rules.target_bytes, rules.limits),
    )


def input_file(candidate: Candidate) -> InputFile:
    """Returns the data file as a plan contains it."""
    return InputFile(
        path=candidate.file.path,
        size_bytes=candidate.file.size_bytes,
        record_count=candidate.file.record_count,
        data_sequence_number=candidate.file.data_sequence_number,
        delete_files=tuple(sorted({d.path for d in candidate.position_deletes})),
        first_row_id=candidate.file.first_row_id,
    )


def applied_deletes(candidates: Iterable[Candidate]) -> tuple[PositionDeleteFile, ...]:
    """Returns the position deletes and deletion vectors that apply to these data files, each once."""
    found = {(d.path, d.content_offset): d for c in candidates for d in c.position_deletes}
    return tuple(planned_delete(found[key]) for key in sorted(found, key=lambda k: (k[0], k[1] or 0)))


def planned_delete(delete: LiveFile, *, void: bool = False) -> PositionDeleteFile:
    """Returns the position delete file or deletion vector as a plan contains it."""
    return PositionDeleteFile(
        path=delete.path,
        spec_id=delete.spec_id,
        partition=delete.partition,
        data_sequence_number=delete.data_sequence_number,
        record_count=delete.record_count,
        size_bytes=delete.size_bytes,
        referenced_data_file=delete.referenced_data_file,
        content_offset=delete.content_offset,
        void=void,
    )


@dataclass(frozen=True, slots=True)
class SortedGroup:
    """A file group to sort, and the gain it should have."""

    group: FileGroup
    layout: PlannedLayout


_MIN_DEPTH_GAIN = 0.2
"""Files are sorted again if that is expected to lower their overlap depth by this share."""


def sorted_groups(
    inputs: PlanInputs, due: PartitionDecision, found: Sequence[Candidate]
) -> list[SortedGroup]:
    """Returns the files that cause the overlap depth of a partition due for its layout, in groups within the limits of a batch
    and the budget. Returns no group for a partition that is not due for it.

    Files under equality deletes are left to the rewrite that applies these deletes. Files that the policy
    moves to another spec are left to the rewrite that moves them.
    """
    policy, order = inputs.policy, inputs.state.order
    rules = Rules.of(due, inputs)
    if order is None or Reason.LAYOUT not in rules.reasons:
        return []
    moves = rules.policy.output_spec is OutputSpec.CURRENT
    by_spec: dict[int, list[Candidate]] = defaultdict(list)
    for candidate in found:
        by_spec[candidate.file.spec_id].append(candidate)
    most_bytes = inputs.left_bytes
    limits = SortLimits(
        goal=policy.layout.overlap_depth_warn or policy.layout.overlap_depth_act or 1.0,
        min_gain_ratio=_MIN_DEPTH_GAIN,
        max_group_bytes=min(most_bytes, rules.policy.max_group_bytes),
        max_group_files=policy.windows.max_files_per_batch,
        output_files=lambda size: expected_output_files(size, rules.target_bytes, rules.limits),
    )
    result = []
    for spec_id, of_spec in sorted(by_spec.items()):
        if moves and spec_id != inputs.state.current_spec_id:
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
            result.append(SortedGroup(file_group(inputs.state, spec_id, chosen, rules), planned))
    return result
