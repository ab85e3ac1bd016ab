"""Plan file groups and batches of `rewrite_data_files`.

Which files and groups are worth a rewrite follows Iceberg's `BinPackRewriteFilePlanner` and
`SizeBasedFileRewritePlanner` (1.12): files outside the desired size range or with too high a
delete ratio, packed to groups, groups kept when they have enough inputs, enough content, too much
content or too many deletes. A differential test holds the two against each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from iceberg_maint.core.binpack import pack
from iceberg_maint.core.ids import Operation
from iceberg_maint.core.judge import (
    expected_output_files,
    size_limits,
    too_many_average_bytes,
)
from iceberg_maint.core.plan import Batch, FileGroup, InputFile, Leftover, Plan, batch_id, make_plan
from iceberg_maint.core.policy import OutputSpec, Policy, RewriteDataFilesPolicy
from iceberg_maint.core.reasons import Decision, PartitionDecision, Reason
from iceberg_maint.core.state import FileKind, LiveFile, TableState

NATIVE = "native"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A live data file with the deletes that apply to it at the pinned snapshot."""

    file: LiveFile
    position_deletes: tuple[LiveFile, ...]
    equality_deletes: tuple[LiveFile, ...]

    @property
    def file_scoped_delete_ratio(self) -> float:
        """Rows marked by deletes that name this file, per row (Iceberg's delete ratio)."""
        marked = sum(d.record_count for d in self.position_deletes if d.referenced_data_file)
        return min(marked, self.file.record_count) / max(1, self.file.record_count)

    @property
    def has_partition_scoped_deletes(self) -> bool:
        """Whether a position delete file that names no single data file may apply."""
        return any(d.referenced_data_file is None for d in self.position_deletes)


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
    by_partition = candidates(state, live_files)
    groups: list[FileGroup] = []
    leftovers: list[Leftover] = [
        Leftover(p.partition, p.reason, bytes=p.candidate_bytes)
        for p in decision.partitions
        if p.reason in (Reason.RUN_BUDGET, Reason.HOUR_BUDGET)
    ]
    reasons: dict[str, Reason] = {}
    for due in decision.due():
        found, left = plan_groups(
            state, due, by_partition.get(due.partition, ()), policy, target_bytes
        )
        groups += found
        leftovers += left
        reasons[due.partition] = due.reason
    batches = tuple(
        _batch(state, tuple(chunk), target_bytes, reasons) for chunk in _chunks(groups, policy)
    )
    return make_plan(
        str(state.table),
        state.uuid,
        Operation.REWRITE_DATA_FILES,
        state.snapshot.snapshot_id if state.snapshot else None,
        batches,
        tuple(leftovers),
    )


def candidates(
    state: TableState, live_files: Iterable[LiveFile]
) -> dict[str, tuple[Candidate, ...]]:
    """Data files by partition key, each with the deletes that apply to it.

    Scope rules of the spec ("Scan Planning"): a position delete applies to data of its partition
    and spec with a sequence number ≤ its own, a deletion vector to its one file, an equality
    delete to data with a strictly lower number, everywhere when its spec is unpartitioned.
    """
    data: list[LiveFile] = []
    by_path: dict[str, list[LiveFile]] = defaultdict(list)
    by_scope: dict[tuple[int, str], list[LiveFile]] = defaultdict(list)
    equality: dict[tuple[int, str], list[LiveFile]] = defaultdict(list)
    global_equality: list[LiveFile] = []
    for file in live_files:
        scope = (file.spec_id, file.partition)
        if file.kind is FileKind.DATA:
            data.append(file)
        elif file.kind is FileKind.EQUALITY_DELETES:
            if state.specs[file.spec_id].is_unpartitioned:
                global_equality.append(file)
            else:
                equality[scope].append(file)
        elif file.referenced_data_file is not None:
            by_path[file.referenced_data_file].append(file)
        else:
            by_scope[scope].append(file)
    result: dict[str, list[Candidate]] = defaultdict(list)
    for file in data:
        seq = file.data_sequence_number
        scope = (file.spec_id, file.partition)
        vectors = [d for d in by_path[file.path] if d.kind is FileKind.DELETION_VECTOR]
        # A deletion vector replaces all earlier position deletes of its file.
        positional = vectors or [
            d
            for d in (*by_path[file.path], *by_scope[scope])
            if d.data_sequence_number >= seq
        ]
        applying = [
            d for d in (*equality[scope], *global_equality) if d.data_sequence_number > seq
        ]
        result[file.partition].append(Candidate(file, tuple(positional), tuple(applying)))
    return {key: tuple(found) for key, found in result.items()}


def plan_groups(
    state: TableState,
    due: PartitionDecision,
    found: Sequence[Candidate],
    policy: Policy,
    target_bytes: int,
) -> tuple[list[FileGroup], list[Leftover]]:
    """File groups of one partition. Files under equality deletes are left over, by name."""
    rewrite = policy.rewrite_data_files
    groups: list[FileGroup] = []
    leftovers: list[Leftover] = []
    blocked = [c for c in found if c.equality_deletes]
    if blocked:
        leftovers.append(
            Leftover(
                due.partition,
                Reason.EQUALITY_DELETES,
                len(blocked),
                sum(c.file.size_bytes for c in blocked),
            )
        )
    free = [c for c in found if not c.equality_deletes]
    by_spec: dict[int, list[Candidate]] = defaultdict(list)
    for candidate in free:
        if due.reason is Reason.FORCED or wanted(candidate, due, rewrite, target_bytes):
            by_spec[candidate.file.spec_id].append(candidate)
    cap = min(rewrite.max_group_bytes, policy.windows.max_bytes_per_batch)
    for spec_id, chosen in sorted(by_spec.items()):
        moves = rewrite.output_spec is OutputSpec.CURRENT
        output_spec_id = state.current_spec_id if moves else spec_id
        for chunk in pack(chosen, cap, lambda c: c.file.size_bytes):
            for limited in _limited(chunk, policy.windows.max_files_per_batch):
                if due.reason is Reason.FORCED or worthwhile(limited, due, rewrite, target_bytes):
                    groups.append(_group(due.partition, spec_id, output_spec_id, limited, target_bytes))
    if not groups and not blocked:
        leftovers.append(Leftover(due.partition, Reason.NO_GAIN))
    return groups, leftovers


def wanted(
    candidate: Candidate,
    due: PartitionDecision,
    policy: RewriteDataFilesPolicy,
    target_bytes: int,
) -> bool:
    """Whether the file itself asks for a rewrite (Iceberg `filterFiles`)."""
    limits = size_limits(policy, target_bytes)
    size = candidate.file.size_bytes
    if not limits.small_below_bytes <= size <= limits.large_above_bytes:
        return True
    reasons = {f.reason for f in due.findings}
    if Reason.TOO_MANY_FILES in reasons and size < too_many_average_bytes(policy, target_bytes):
        return True
    if Reason.DELETE_FILES in reasons and candidate.position_deletes:
        return True
    return _too_many_deletes(candidate, due, policy)


def worthwhile(
    group: Sequence[Candidate],
    due: PartitionDecision,
    policy: RewriteDataFilesPolicy,
    target_bytes: int,
) -> bool:
    """Whether a group gains (Iceberg `filterFileGroups`), and makes progress: fewer files than
    before, or deletes removed."""
    if any(_too_many_deletes(c, due, policy) for c in group):
        return True
    reasons = {f.reason for f in due.findings}
    if Reason.DELETE_FILES in reasons and any(c.position_deletes for c in group):
        return True
    size = sum(c.file.size_bytes for c in group)
    many = len(group) > 1
    enough_files = many and len(group) >= policy.min_input_files
    enough_content = many and size > target_bytes
    too_much = size > size_limits(policy, target_bytes).large_above_bytes
    too_many_files = many and Reason.TOO_MANY_FILES in reasons
    if not (enough_files or enough_content or too_much or too_many_files):
        return False
    outputs = expected_output_files(size, target_bytes)
    return outputs < len(group) or (too_much and len(group) == 1)


def _too_many_deletes(
    candidate: Candidate, due: PartitionDecision, policy: RewriteDataFilesPolicy
) -> bool:
    if policy.delete_ratio_act is None or not candidate.position_deletes:
        return False
    if candidate.file_scoped_delete_ratio >= policy.delete_ratio_act:
        return True
    by_ratio = any(f.reason is Reason.DELETE_RATIO and f.severity == "error" for f in due.findings)
    # Whom a partition-scoped delete file marks is not in metadata: take every file it may mark.
    return by_ratio and candidate.has_partition_scoped_deletes


def _limited(chunk: list[Candidate], max_files: int) -> Iterable[list[Candidate]]:
    for start in range(0, len(chunk), max_files):
        yield chunk[start : start + max_files]


def _group(
    partition: str,
    spec_id: int,
    output_spec_id: int,
    chosen: Sequence[Candidate],
    target_bytes: int,
) -> FileGroup:
    files = tuple(
        InputFile(
            path=c.file.path,
            size_bytes=c.file.size_bytes,
            record_count=c.file.record_count,
            data_sequence_number=c.file.data_sequence_number,
            delete_files=tuple(sorted({d.path for d in c.position_deletes})),
        )
        for c in chosen
    )
    group = FileGroup(partition, spec_id, output_spec_id, files, 0)
    return replace(
        group, expected_output_files=expected_output_files(group.input_bytes, target_bytes)
    )


def _chunks(groups: list[FileGroup], policy: Policy) -> list[list[FileGroup]]:
    windows = policy.windows
    chunks: list[list[FileGroup]] = []
    for group in groups:
        last = chunks[-1] if chunks else None
        if last is not None:
            partitions = {g.partition for g in (*last, group)}
            files = sum(len(g.files) for g in last) + len(group.files)
            size = sum(g.input_bytes for g in last) + group.input_bytes
            fits = (
                len(partitions) <= windows.max_partitions_per_batch
                and files <= windows.max_files_per_batch
                and size <= windows.max_bytes_per_batch
            )
            if fits:
                last.append(group)
                continue
        chunks.append([group])
    return chunks


def _batch(
    state: TableState,
    groups: tuple[FileGroup, ...],
    target_bytes: int,
    reasons: dict[str, Reason],
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
