"""Plans batches of `convert_equality_deletes`: deletes with every data file they apply to.

A delete file can be dropped only when no data file needs it, and a conversion keeps the data files. A batch
with some of the data files of a delete would therefore gain nothing. The smallest part of a plan is a whole
unit (`core.planning.equality_delete_route`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from iceberg_maint.core.decisions.windows import Budget
from iceberg_maint.core.health.thresholds import DANGLING
from iceberg_maint.core.model.ids import Operation, PartitionKey
from iceberg_maint.core.model.reasons import Decision, PartitionDecision, Reason, Severity, Verdict
from iceberg_maint.core.model.table_state import FileKind, LiveFile
from iceberg_maint.core.planning.equality_delete_route import Unit, fits_a_batch, units
from iceberg_maint.core.planning.equality_deletes import (
    EqualityDeletes,
    LiveData,
    memory_need,
    planned_deletes,
)
from iceberg_maint.core.planning.file_groups import (
    Candidate,
    PlanInputs,
    applied_deletes,
    candidates,
    input_file,
)
from iceberg_maint.core.planning.plan import Batch, Leftover, Plan, batch_at, leftovers_of, plan_at
from iceberg_maint.core.planning.work import ConvertEqualityDeletes, FileGroup
from iceberg_maint.core.policy.data import RewriteStrategy, Route

_BUDGETS = (Reason.RUN_BUDGET, Reason.HOUR_BUDGET, Reason.FLEET_BUDGET)


def plan_conversion(inputs: PlanInputs) -> Plan:
    """Plans the partitions that the decision says RUN, in its order.

    Caps on bytes count key work: the key columns that are read, and the deletes. A unit with a partition that is `alone` is a
    batch of its own.
    """
    state, decision = inputs.state, inputs.decision
    files = tuple(f for f in inputs.live_files if f.path not in inputs.rewritten)
    found = candidates(state.specs, files)
    deletes = EqualityDeletes.of(state.specs, files)
    blocked = deletes.unsupported(state.key_types)
    by_partition = units(inputs, found, deletes)
    dangling = _dangling(decision, deletes, files)
    leftovers: list[Leftover] = []
    taken: list[Unit] = []
    done: set[PartitionKey] = set()
    budget = Budget(decision.budget_partitions, decision.budget_bytes)
    for due in decision.due():
        unit = by_partition.get(due.partition)
        if unit is None or due.partition in done:
            continue
        why = _obstacle(inputs, unit, due, blocked, budget)
        if why is not None:
            sizes = [c.file.size_bytes for c in unit.files[due.partition]]
            leftovers.append(Leftover(due.partition, why, len(sizes), sum(sizes)))
            continue
        budget = budget.less(unit.key_work_bytes, partitions=len(unit.files))
        done |= unit.files.keys()
        taken.append(unit)
    leftovers += [left for left in leftovers_of(decision) if left.partition not in done]
    live = LiveData.of(files)
    batches = [_batch(inputs, chunk, live) for chunk in _chunks(inputs, taken)]
    if any(_has_old_dangling(p) for p in decision.due()):
        unused = tuple(d for of_one in dangling.values() for d in of_one)
        # This batch reads no file.
        dropping = ConvertEqualityDeletes(planned_deletes(unused, frozenset(), state.specs))
        batches += [_of_work(inputs, dropping, frozenset())] if unused else []
    planned = done | dangling.keys() | {left.partition for left in leftovers}
    leftovers += [Leftover(p.partition, Reason.NO_GAIN) for p in decision.due() if p.partition not in planned]
    return plan_at(state, Operation.CONVERT_EQUALITY_DELETES, batches, leftovers)


def _obstacle(
    inputs: PlanInputs, unit: Unit, due: PartitionDecision, blocked: EqualityDeletes, budget: Budget
) -> Reason | None:
    """Returns why this run does not convert the unit, None if it does. A partition that the decision deferred
    because of its estimated size is converted with its unit: the size of the unit decides."""
    decision, policy = inputs.decision, inputs.policy
    if any(blocked.apply_to(c.file) for c in unit.files[due.partition]):
        return Reason.UNSUPPORTED_KEY
    if unit.unsupported and not policy.rewrite_data_files.enabled:
        # No other operation handles it.
        return Reason.UNSUPPORTED_KEY
    if unit.route is Route.REWRITE:
        return Reason.OTHER_OPERATION
    if not fits_a_batch(unit, policy.windows):
        return Reason.FILE_TOO_LARGE
    if not budget.holds(unit.key_work_bytes, partitions=len(unit.files)):
        return decision.budget_reason
    held = (p for p in decision.partitions if p.partition in unit.files and p.verdict is Verdict.DEFER)
    return next((p.reason for p in held if p.reason not in _BUDGETS), None)


def _dangling(
    decision: Decision, deletes: EqualityDeletes, files: Iterable[LiveFile]
) -> dict[PartitionKey, tuple[LiveFile, ...]]:
    """Returns, by partition, the equality deletes of due partitions that apply to no live data file.

    The health was measured on the whole table. If it counts a different number of these deletes, some data
    files are not in `files`, and the partition has no entry.
    """
    by_partition: dict[PartitionKey, list[LiveFile]] = {}
    for delete in deletes.dangling(f for f in files if f.kind is FileKind.DATA):
        by_partition.setdefault(delete.partition, []).append(delete)
    result: dict[PartitionKey, tuple[LiveFile, ...]] = {}
    for due in decision.due():
        counted = sum(f.value for f in due.findings if f.metric == DANGLING)
        own = by_partition.get(due.partition, [])
        if own and len(own) == counted:
            result[due.partition] = tuple(own)
    return result


def _has_old_dangling(due: PartitionDecision) -> bool:
    return any(f.metric == DANGLING and f.severity is Severity.ERROR for f in due.findings)


def _chunks(inputs: PlanInputs, taken: Iterable[Unit]) -> list[list[Unit]]:
    """Groups consecutive units into batches. The units of a batch have keys of equal width, because the
    widest key would count for all its files. For `columnar` Arrow finds the rows, a partition at a time."""
    windows, alone = inputs.batch_windows, inputs.limits.alone
    columnar = inputs.policy.rewrite_data_files.strategy is RewriteStrategy.COLUMNAR
    chunks: list[list[Unit]] = []
    for unit in taken:
        joined = [*chunks[-1], unit] if chunks else []
        key_work_bytes = sum(u.key_work_bytes for u in joined)
        most_partitions = (
            windows.partitions_per_columnar_batch(key_work_bytes)
            if columnar
            else windows.partitions_per_batch
        )
        fits = (
            len({u.key_bytes for u in joined}) == 1
            and alone.isdisjoint(p for u in joined for p in u.files)
            and sum(len(u.files) for u in joined) <= most_partitions
            and sum(u.file_count for u in joined) <= windows.max_files_per_batch
            and key_work_bytes <= windows.max_bytes_per_batch
        )
        if fits:
            chunks[-1] = joined
        else:
            chunks.append([unit])
    return chunks


def _batch(inputs: PlanInputs, chunk: Sequence[Unit], live: LiveData) -> Batch:
    """Returns the batch that converts these units."""
    state = inputs.state
    groups = tuple(g for unit in chunk for g in _groups(unit.files))
    paths = frozenset(f.path for g in groups for f in g.files)
    deletes = tuple(d for unit in chunk for d in unit.deletes)
    kept = live.needed_beside(deletes, paths, state.specs)
    rows = sum(unit.rows for unit in chunk)
    work = ConvertEqualityDeletes(
        planned_deletes(deletes, kept, state.specs),
        groups,
        memory_need(deletes, rows, state.key_types, inputs.limits.memory_correction),
        applied_deletes(c for unit in chunk for some in unit.files.values() for c in some),
    )
    return _of_work(inputs, work, paths)


def _of_work(inputs: PlanInputs, work: ConvertEqualityDeletes, paths: frozenset[str]) -> Batch:
    read = paths | {d.path for d in work.equality_deletes}
    batch = batch_at(inputs.state, work, read, inputs.target_bytes)
    return replace(batch, reasons=(Reason.EQUALITY_DELETES,))


def _groups(files: Mapping[PartitionKey, tuple[Candidate, ...]]) -> Iterable[FileGroup]:
    """Yields one group per partition and spec. The batch writes no data files for them."""
    for partition, some in files.items():
        for spec_id in sorted({c.file.spec_id for c in some}):
            chosen = tuple(input_file(c) for c in some if c.file.spec_id == spec_id)
            yield FileGroup(partition, spec_id, spec_id, chosen, expected_output_files=0)
