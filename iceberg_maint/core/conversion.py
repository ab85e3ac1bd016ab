"""Plan batches of `convert_equality_deletes`: deletes with every data file they apply to.

A delete file may go only when no data file needs it any more, and a conversion leaves data files
as they are: a batch that held only part of a delete's files would gain nothing. So the smallest
thing planned is a unit (`core.route`), whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from iceberg_maint.core.candidate import Candidate, candidates
from iceberg_maint.core.equality import (
    EqualityDeletes,
    LiveData,
    has_unsupported_key,
    memory_need,
    planned_deletes,
)
from iceberg_maint.core.groups import input_file
from iceberg_maint.core.ids import Operation
from iceberg_maint.core.judge import DANGLING
from iceberg_maint.core.plan import Batch, FileGroup, Leftover, Plan, batch_id, make_plan
from iceberg_maint.core.policy import Policy, Route, WindowsPolicy
from iceberg_maint.core.reasons import Decision, PartitionDecision, Reason, Severity, Verdict
from iceberg_maint.core.route import Unit, fits_a_batch, units
from iceberg_maint.core.state import FileKind, LiveFile, TableState

CONVERT = "convert"

_OPERATION = Operation.CONVERT_EQUALITY_DELETES


@dataclass(frozen=True, slots=True)
class _Taken:
    """A unit that is planned, with the dangling deletes of its partitions."""

    unit: Unit
    dangling: tuple[LiveFile, ...]


def plan_conversion(
    state: TableState,
    decision: Decision,
    live_files: Iterable[LiveFile],
    policy: Policy,
    target_bytes: int,
    *,
    memory_correction: float = 1.0,
) -> Plan:
    """The plan for the partitions the decision says RUN, in its order.

    `live_files` are those of `partitions_to_read` and all equality deletes of unpartitioned specs.
    Caps on bytes count key work: the key columns read and the deletes.
    """
    files = tuple(live_files)
    found = candidates(state.specs, files)
    deletes = EqualityDeletes.of(state.specs, files)
    blocked = deletes.unsupported(state.key_types)
    by_partition = units(decision, found, deletes, state.key_types, policy, target_bytes)
    dangling = _dangling(decision, deletes, files)
    leftovers = [
        Leftover(p.partition, p.reason, bytes=p.candidate_bytes)
        for p in decision.partitions
        if p.verdict in (Verdict.DEFER, Verdict.REFUSE)
    ]
    taken: list[_Taken] = []
    done: set[str] = set()
    left_bytes = decision.budget_bytes
    for due in decision.due():
        unit = by_partition.get(due.partition)
        if unit is None or due.partition in done:
            continue
        why = _obstacle(unit, due, decision, blocked, policy, left_bytes)
        if why is not None:
            own = unit.files[due.partition]
            size = sum(c.file.size_bytes for c in own)
            leftovers.append(Leftover(due.partition, why, len(own), size))
            continue
        left_bytes = None if left_bytes is None else left_bytes - unit.key_work_bytes
        done |= unit.files.keys()
        taken.append(_Taken(unit, _attached(unit, dangling, state.key_types)))
    batches = [
        _batch(state, chunk, files, target_bytes, memory_correction)
        for chunk in _chunks(taken, policy.windows)
    ]
    grave = {p.partition for p in decision.due() if _dangling_finding(p, Severity.ERROR)}
    if alone := [d for key, of_one in dangling.items() if key in grave for d in of_one]:
        batches.append(_batch(state, [], files, target_bytes, memory_correction, alone))
    idle = {p.partition for p in decision.due()} - done - grave - {left.partition for left in leftovers}
    leftovers += [Leftover(key, Reason.NO_GAIN) for key in sorted(idle)]
    return make_plan(
        str(state.table),
        state.uuid,
        _OPERATION,
        state.snapshot.snapshot_id if state.snapshot else None,
        tuple(batches),
        tuple(leftovers),
    )


def _obstacle(
    unit: Unit,
    due: PartitionDecision,
    decision: Decision,
    blocked: EqualityDeletes,
    policy: Policy,
    left_bytes: int | None,
) -> Reason | None:
    """Why this run does not convert the unit."""
    if any(blocked.apply_to(c.file) for c in unit.files[due.partition]):
        return Reason.UNSUPPORTED_KEY
    if unit.route is Route.REWRITE:
        return Reason.OTHER_OPERATION
    if not fits_a_batch(unit, policy.windows):
        return Reason.FILE_TOO_LARGE
    if left_bytes is not None and unit.key_work_bytes > left_bytes:
        return decision.budget_reason
    return next(
        (p.reason for p in decision.partitions if p.partition in unit.files and p.verdict is Verdict.DEFER),
        None,
    )


def _attached(
    unit: Unit, dangling: dict[str, tuple[LiveFile, ...]], key_types: Mapping[int, str]
) -> tuple[LiveFile, ...]:
    """Takes the dangling deletes of the unit's partitions out of `dangling`; those whose keys
    cannot be matched stay, for a batch that reads no keys."""
    found: list[LiveFile] = []
    for key in unit.files.keys() & dangling.keys():
        found += (d for d in dangling[key] if not has_unsupported_key(d, key_types))
        dangling[key] = tuple(d for d in dangling[key] if has_unsupported_key(d, key_types))
    return tuple(sorted(found, key=lambda d: d.path))


def _dangling(
    decision: Decision, deletes: EqualityDeletes, files: Iterable[LiveFile]
) -> dict[str, tuple[LiveFile, ...]]:
    """Equality deletes of due partitions that apply to no live data file, by partition.

    Health has seen the whole table: where it counts another number of them, some data files are
    not among `files`, and nothing is said about the partition.
    """
    by_partition: dict[str, list[LiveFile]] = {}
    for delete in deletes.dangling(f for f in files if f.kind is FileKind.DATA):
        by_partition.setdefault(delete.partition, []).append(delete)
    result: dict[str, tuple[LiveFile, ...]] = {}
    for due in decision.due():
        counted = sum(f.value for f in due.findings if f.metric == DANGLING)
        own = by_partition.get(due.partition, [])
        if own and len(own) == counted:
            result[due.partition] = tuple(own)
    return result


def _dangling_finding(due: PartitionDecision, severity: Severity) -> bool:
    return any(f.metric == DANGLING and f.severity is severity for f in due.findings)


def _chunks(taken: Iterable[_Taken], windows: WindowsPolicy) -> list[list[_Taken]]:
    """Consecutive units that one batch may hold together."""
    chunks: list[list[_Taken]] = []
    for one in taken:
        joined = [*chunks[-1], one] if chunks else []
        fits = (
            sum(len(t.unit.files) for t in joined) <= windows.max_partitions_per_batch
            and sum(t.unit.file_count for t in joined) <= windows.max_files_per_batch
            and sum(t.unit.key_work_bytes for t in joined) <= windows.max_bytes_per_batch
        )
        if joined and fits:
            chunks[-1] = joined
        else:
            chunks.append([one])
    return chunks


def _batch(
    state: TableState,
    chunk: list[_Taken],
    files: tuple[LiveFile, ...],
    target_bytes: int,
    memory_correction: float,
    dangling: Iterable[LiveFile] = (),
) -> Batch:
    """One batch; without units it only drops dangling deletes, and nothing is read for it."""
    assert state.snapshot is not None
    groups = tuple(g for taken in chunk for g in _groups(taken.unit.files))
    paths = frozenset(f.path for g in groups for f in g.files)
    applying = tuple(d for taken in chunk for d in taken.unit.deletes)
    unused = (*(d for taken in chunk for d in taken.dangling), *dangling)
    kept = LiveData.of(files).needed_beside(applying, paths, state.specs)
    everything = (*applying, *unused)
    rows = sum(taken.unit.rows for taken in chunk)
    return Batch(
        batch_id=batch_id(
            state.uuid, _OPERATION, state.snapshot.snapshot_id, paths | {d.path for d in everything}
        ),
        table=str(state.table),
        table_uuid=state.uuid,
        operation=_OPERATION,
        strategy=CONVERT,
        format_version=state.format_version,
        snapshot_id=state.snapshot.snapshot_id,
        snapshot_sequence_number=state.snapshot.sequence_number,
        schema_id=state.schema_id,
        groups=groups,
        target_file_size_bytes=target_bytes,
        reasons=(Reason.EQUALITY_DELETES,),
        equality_deletes=planned_deletes(everything, kept, state.specs),
        memory=memory_need(applying, rows, state.key_types, memory_correction) if applying else None,
    )


def _groups(files: Mapping[str, tuple[Candidate, ...]]) -> Iterable[FileGroup]:
    """One group per partition and spec, of which nothing is written."""
    for partition, some in files.items():
        for spec_id in sorted({c.file.spec_id for c in some}):
            chosen = tuple(input_file(c) for c in some if c.file.spec_id == spec_id)
            yield FileGroup(partition, spec_id, spec_id, chosen, expected_output_files=0)
