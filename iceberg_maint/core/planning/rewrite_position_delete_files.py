"""Plans batches of `rewrite_position_delete_files`: deletes with every data file that they may name.

The positions of live data files are written again, to one new file per data file (in v3 a deletion vector),
and the old delete file is removed. A partition-scoped delete file may name any data file of its partition,
and only its content says which. It is therefore read, and planned together with every live data file that it
may apply to. No other rule drops a delete that may apply: joins of partitions and sequence numbers have
dropped deletes and brought rows back (apache/iceberg#15727).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from iceberg_maint.core.decisions.windows import Budget
from iceberg_maint.core.health.thresholds import DANGLING_POSITIONS, MERGEABLE, REMAINING
from iceberg_maint.core.model.ids import Operation, PartitionKey
from iceberg_maint.core.model.reasons import PartitionDecision, Reason, Severity
from iceberg_maint.core.model.table_state import (
    FileKind,
    LiveFile,
    Scope,
    position_delete_reaches,
    scope_of,
)
from iceberg_maint.core.planning.file_groups import (
    Candidate,
    PlanInputs,
    applied_deletes,
    candidates,
    input_file,
    planned_delete,
)
from iceberg_maint.core.planning.plan import Batch, Leftover, Plan, batch_at, leftovers_of, plan_at
from iceberg_maint.core.planning.work import FileGroup, PositionDeleteFile, RewritePositionDeleteFiles
from iceberg_maint.core.policy.runs import WindowsPolicy


def plan_position_deletes(inputs: PlanInputs) -> Plan:
    """Plans the partitions that the decision says RUN, in its order. Caps on bytes count the deletes that are read."""
    state, decision, policy, files = inputs.state, inputs.decision, inputs.policy, inputs.live_files
    found = candidates(state.specs, files)
    deletes: dict[PartitionKey, list[LiveFile]] = defaultdict(list)
    for file in files:
        if file.kind in (FileKind.POSITION_DELETES, FileKind.DELETION_VECTOR):
            deletes[file.partition].append(file)
    taken: list[_Unit] = []
    leftovers = leftovers_of(decision)
    budget = Budget(decision.budget_partitions, decision.budget_bytes)
    for due in decision.due():
        key = due.partition
        may_merge = policy.rewrite_position_delete_files.min_input_files is not None
        units = _units(due, found.get(key, ()), deletes[key], state.format_version, may_merge=may_merge)
        fitting: list[_Unit] = []
        left: dict[Reason, list[_Unit]] = defaultdict(list)
        for unit in units:
            partitions = 0 if fitting else 1
            if not unit.fits(policy.windows):
                left[Reason.FILE_TOO_LARGE].append(unit)
            elif not budget.holds(unit.size_bytes, partitions=partitions):
                left[decision.budget_reason].append(unit)
            else:
                budget = budget.less(unit.size_bytes, partitions=partitions)
                fitting.append(unit)
        taken += fitting
        leftovers += [
            Leftover(key, why, sum(len(u.deletes) for u in of), sum(u.size_bytes for u in of))
            for why, of in left.items()
        ]
        if not units:
            leftovers.append(Leftover(key, Reason.NO_GAIN))
    reasons = {p.partition: p.reason for p in decision.due()}
    batches = (_batch(inputs, chunk, reasons) for chunk in _chunks(inputs, taken))
    return plan_at(state, Operation.REWRITE_POSITION_DELETE_FILES, batches, leftovers)


@dataclass(frozen=True, slots=True)
class _Unit:
    """Position deletes of one partition that are rewritten together, and the data files they may apply to."""

    partition: PartitionKey
    examined: tuple[Candidate, ...]
    deletes: tuple[PositionDeleteFile, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes that are read."""
        return sum(d.size_bytes for d in self.deletes if not d.void)

    def fits(self, windows: WindowsPolicy) -> bool:
        """Whether the unit fits into one batch."""
        caps = (windows.max_bytes_per_batch, windows.max_bytes_per_run, windows.max_bytes_per_hour)
        return self.size_bytes <= min(c for c in caps if c is not None) and (
            max(len(self.examined), len(self.deletes)) <= windows.max_files_per_batch
        )


def _units(
    due: PartitionDecision,
    found: Sequence[Candidate],
    deletes: Sequence[LiveFile],
    format_version: int,
    *,
    may_merge: bool,
) -> list[_Unit]:
    """Returns the work on the partition as units that can be done separately. Without `may_merge` deletes that apply to
    no file are dropped, and no others are written."""
    grave = {f.metric for f in due.findings if f.severity is Severity.ERROR}
    merges = may_merge and (due.reason is Reason.FORCED or not grave.isdisjoint((MERGEABLE, REMAINING)))
    units: list[_Unit] = []
    alone: list[Candidate] = []
    for spec_id in sorted({c.file.spec_id for c in found}):
        scope = [c for c in found if c.file.spec_id == spec_id]
        oldest = _Oldest.of(scope)
        shared = [d for d in deletes if _is_shared(d) and d.spec_id == spec_id and oldest.reached_by(d)]
        hollow = may_merge and any(not oldest.may_be_named_by(d) for d in shared)
        if not shared or not (merges or hollow):
            alone += scope
            continue
        newest = max(d.data_sequence_number for d in shared)
        under = [c for c in scope if position_delete_reaches(newest, c.file.data_sequence_number)]
        alone += [c for c in scope if not position_delete_reaches(newest, c.file.data_sequence_number)]
        own = [d for c in under if _goes_along(c, newest, format_version) for d in _named(c)]
        units.append(_Unit(due.partition, tuple(under), tuple(map(planned_delete, (*shared, *own)))))
    fewest = 1 if format_version >= 3 else 2
    units += [
        _Unit(due.partition, (c,), tuple(map(planned_delete, _named(c))))
        for c in alone
        if merges and len(_named(c)) >= fewest
    ]
    by_path = {c.file.path: c for c in found}
    for delete in _void(due, found, deletes):
        named = by_path.get(delete.referenced_data_file or "")
        units.append(_Unit(due.partition, (named,) if named else (), (planned_delete(delete, void=True),)))
    return units


def _void(due: PartitionDecision, found: Sequence[Candidate], deletes: Sequence[LiveFile]) -> list[LiveFile]:
    """Returns the deletes that apply to no live data file by the rules of the specification. The file that a
    delete names is gone, is newer or has a deletion vector, or its spec and partition have no file that is
    old enough.

    The health was measured on the whole table. If it counts a different number of these deletes, some data
    files are not in `found`, and the function returns only deletes that a deletion vector replaces.
    """
    counted = next((int(f.value) for f in due.findings if f.metric == DANGLING_POSITIONS), 0)
    applying = {_identity(d) for c in found for d in c.position_deletes}
    live = {c.file.path: c.file.data_sequence_number for c in found}
    spec_ids = {d.spec_id for d in deletes}
    oldest = {i: _Oldest.of([c for c in found if c.file.spec_id == i]) for i in spec_ids}
    dangling, masked, hollow = [], [], 0
    for delete in deletes:
        named = delete.referenced_data_file
        if named is None:
            if not oldest[delete.spec_id].reached_by(delete):
                dangling.append(delete)
            elif not oldest[delete.spec_id].may_be_named_by(delete):
                hollow += 1
        elif named not in live or not position_delete_reaches(delete.data_sequence_number, live[named]):
            dangling.append(delete)
        elif _identity(delete) not in applying:
            masked.append(delete)
    return [*dangling, *masked] if len(dangling) + hollow == counted else masked


def _identity(delete: LiveFile) -> tuple[str, int | None]:
    return delete.path, delete.content_offset


def _is_shared(delete: LiveFile) -> bool:
    return delete.referenced_data_file is None


@dataclass(frozen=True, slots=True)
class _Oldest:
    """The lowest data sequence number of the data files of one spec and partition, and the lowest sequence
    number of the commits that added them. None without data files."""

    data: int | None
    added: int | None

    @classmethod
    def of(cls, scope: Sequence[Candidate]) -> _Oldest:
        """Returns the lowest numbers of these files."""
        data = min((c.file.data_sequence_number for c in scope), default=None)
        return cls(data, min(map(_added, scope), default=None))

    def reached_by(self, delete: LiveFile) -> bool:
        """Returns whether a partition-scoped delete file applies to one of the files by its number."""
        number = delete.data_sequence_number
        return self.data is not None and position_delete_reaches(number, self.data)

    def may_be_named_by(self, delete: LiveFile) -> bool:
        """Returns whether one of the files existed when the delete file was added. The delete file can name
        no other."""
        return self.added is not None and self.added <= delete.data_sequence_number


def _added(candidate: Candidate) -> int:
    return max(candidate.file.data_sequence_number, candidate.file.file_sequence_number or 0)


def _named(candidate: Candidate) -> list[LiveFile]:
    """Returns the position delete files that apply to this data file alone."""
    return [
        d for d in candidate.position_deletes if d.kind is FileKind.POSITION_DELETES and not _is_shared(d)
    ]


def _goes_along(candidate: Candidate, newest: int, format_version: int) -> bool:
    """Returns whether the data file's own position deletes are rewritten together with the shared ones. In v3
    always, because one deletion vector replaces them all. In v2 only if the shared ones may name the file, or
    if the file has more than one of its own."""
    return format_version >= 3 or _added(candidate) <= newest or len(_named(candidate)) > 1


def _chunks(inputs: PlanInputs, units: Iterable[_Unit]) -> list[list[_Unit]]:
    """Groups consecutive units into batches."""
    windows, alone = inputs.batch_windows, inputs.limits.alone
    chunks: list[list[_Unit]] = []
    partitions: set[PartitionKey] = set()
    examined = deletes = size_bytes = 0
    for unit in units:
        partitions.add(unit.partition)
        examined += len(unit.examined)
        deletes += len(unit.deletes)
        size_bytes += unit.size_bytes
        fits = (
            (len(partitions) == 1 or alone.isdisjoint(partitions))
            and len(partitions) <= windows.partitions_per_batch
            and max(examined, deletes) <= windows.max_files_per_batch
            and size_bytes <= windows.max_bytes_per_batch
        )
        if chunks and fits:
            chunks[-1].append(unit)
            continue
        chunks.append([unit])
        partitions = {unit.partition}
        examined, deletes, size_bytes = len(unit.examined), len(unit.deletes), unit.size_bytes
    return chunks


def _batch(inputs: PlanInputs, chunk: Sequence[_Unit], reasons: Mapping[PartitionKey, Reason]) -> Batch:
    deletes = tuple(d for unit in chunk for d in unit.deletes)
    applied = applied_deletes(c for unit in chunk for c in unit.examined)
    known = {d.identity for d in deletes}
    names = frozenset(d.path if d.content_offset is None else f"{d.path}@{d.content_offset}" for d in deletes)
    work = RewritePositionDeleteFiles(
        groups=tuple(_groups(chunk)),
        position_deletes=deletes,
        applied_deletes=tuple(d for d in applied if d.identity not in known),
    )
    batch = batch_at(inputs.state, work, names, inputs.target_bytes)
    return replace(batch, reasons=tuple(sorted({reasons[unit.partition] for unit in chunk})))


def _groups(chunk: Iterable[_Unit]) -> Iterator[FileGroup]:
    """Yields the data files of the batch, one group per partition and spec. The batch writes no data files
    for them."""
    by_scope: dict[Scope, dict[str, Candidate]] = defaultdict(dict)
    for unit in chunk:
        for candidate in unit.examined:
            by_scope[scope_of(candidate.file)][candidate.file.path] = candidate
    for (spec_id, partition), examined in by_scope.items():
        files = tuple(input_file(c) for c in examined.values())
        yield FileGroup(partition, spec_id, spec_id, files, expected_output_files=0)
