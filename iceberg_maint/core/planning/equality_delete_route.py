"""Route: whether the equality deletes of a partition are converted, or its files are rewritten.

Both planners call this module with the same inputs, so that only one of them takes a partition. The cost
model and its reasons: docs/design/decisions/deletes-route.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from iceberg_maint.core.decisions.applicability import has_old_deletes, may_convert
from iceberg_maint.core.model.ids import PartitionKey
from iceberg_maint.core.model.reasons import Decision, PartitionDecision, Reason, Verdict
from iceberg_maint.core.model.table_state import LiveFile
from iceberg_maint.core.planning.equality_deletes import (
    EqualityDeletes,
    has_unsupported_key,
    key_work_bytes,
    widest_key_bytes,
)
from iceberg_maint.core.planning.file_groups import Candidate, PlanInputs, Rules, least, packed_groups
from iceberg_maint.core.policy.data import RewriteStrategy, Route
from iceberg_maint.core.policy.runs import WindowsPolicy

_MOST_FILE_COST_BYTES = 512 * 1024
"""The cost of a data file in a conversion besides its bytes: 25 ms of CPU for a position delete file that is written,
described and read back. `columnar` reads and writes about twice as many bytes in that time, but written bytes cost
storage as well."""
_BLOCKED = (Reason.RECENTLY_CHANGED, Reason.BACK_OFF, Reason.QUARANTINED)


@dataclass(frozen=True, slots=True)
class Unit:
    """Files under equality deletes that must be converted together: the files of one partition or, under
    deletes of an unpartitioned spec, those of every partition that these deletes apply to.

    `files` is by partition key. `deletes` are all equality deletes that apply to one of the files.
    `key_bytes` is the width of the widest key. `key_work_bytes` is what the search for deleted rows reads:
    the key columns and the deletes. `unsupported`: a delete has keys that cannot be matched. `route` applies
    to the whole unit.
    """

    files: Mapping[PartitionKey, tuple[Candidate, ...]]
    deletes: tuple[LiveFile, ...]
    key_bytes: int
    key_work_bytes: int
    unsupported: bool
    route: Route

    @property
    def file_count(self) -> int:
        """Number of data files."""
        return sum(len(files) for files in self.files.values())

    @property
    def file_bytes(self) -> int:
        """Bytes of the files."""
        return sum(c.file.size_bytes for files in self.files.values() for c in files)

    @property
    def rows(self) -> int:
        """Rows in the files."""
        return sum(c.file.record_count for files in self.files.values() for c in files)


def units(
    inputs: PlanInputs, found: Mapping[PartitionKey, Sequence[Candidate]], deletes: EqualityDeletes
) -> dict[PartitionKey, Unit]:
    """Returns the unit of each partition whose equality deletes are old enough, or that was forced.

    `found` contains every candidate that deletes of an unpartitioned spec apply to. A partition with young
    deletes has no unit of its own. If its files need a rewrite for another reason, the rewrite applies the
    deletes.
    """
    decided = _Decided({p.partition: p for p in inputs.decision.partitions}, inputs.decision.beside)
    together: dict[PartitionKey, tuple[Candidate, ...]] = {}
    result: dict[PartitionKey, Unit] = {}
    for key, candidates in found.items():
        if any(deletes.apply_everywhere_to(c.file) for c in candidates):
            together[key] = _under(candidates)
    if any(decided.asks(key) for key in together):
        unit = _unit(inputs, together, decided, deletes)
        result |= dict.fromkeys(together, unit)
    for key, candidates in found.items():
        if key in together or not decided.asks(key):
            continue
        if under := _under(candidates):
            result[key] = _unit(inputs, {key: under}, decided, deletes)
    return result


def left_to_conversion(due: PartitionDecision, unit: Unit, decision: Decision) -> bool:
    """Returns whether a rewrite leaves a due partition to the conversion of its unit.

    A partition with young deletes is due because of its files only. It waits only for a conversion that has
    the unit in its window. A conversion without the unit in its window may take long to reach it, or may
    never reach it while this partition is due for a rewrite.
    """
    if unit.route is Route.REWRITE:
        return False
    others = (decision.beside.get(key) for key in unit.files)
    return _asks(due) or any(p is not None and p.verdict is Verdict.RUN for p in others)


def fits_a_batch(unit: Unit, windows: WindowsPolicy) -> bool:
    """Returns whether the unit fits into one batch. Its bytes are key work, because a conversion reads only
    keys."""
    most_partitions = least(
        windows.partitions_per_batch, windows.max_partitions_per_run, windows.max_partitions_per_hour
    )
    most_bytes = least(windows.max_bytes_per_batch, windows.max_bytes_per_run, windows.max_bytes_per_hour)
    return (
        len(unit.files) <= most_partitions
        and unit.file_count <= windows.max_files_per_batch
        and unit.key_work_bytes <= most_bytes
    )


def conversion_cost_bytes(unit: Unit, due: Sequence[Candidate], target_bytes: int, per_file: int = 0) -> int:
    """Returns the bytes read and written by a conversion and by the rewrite of the files of the unit that are `due` for
    other reasons.

    The commit of that rewrite counts as an eighth of a file. Each other data file counts as `per_file`: where it counts,
    the files that are due are rewritten first (`core.decisions.step_order`), and are not converted.
    """
    due_bytes = sum(c.file.size_bytes for c in due)
    rewriting = 2 * due_bytes + target_bytes // 8 if due else 0
    converted = unit.file_count - len(due)
    return unit.key_work_bytes + rewriting + converted * per_file


def file_cost_bytes(target_bytes: int) -> int:
    """Returns the cost of a data file in a conversion besides its bytes. It stays below the rewrite of a file of the
    target size, so a healthy file always favours the conversion."""
    return min(_MOST_FILE_COST_BYTES, target_bytes // 4)


def rewrite_cost_bytes(unit: Unit, windows: WindowsPolicy) -> int:
    """Returns the bytes read and written by a rewrite of all files under the deletes. Each batch reads all
    deletes."""
    batches = -(-unit.file_bytes // windows.max_bytes_per_batch)
    again = max(0, batches - 1) * sum(d.size_bytes for d in unit.deletes)
    return unit.key_work_bytes + again + 2 * unit.file_bytes


def _under(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    return tuple(c for c in candidates if c.under_equality_deletes)


def _asks(due: PartitionDecision) -> bool:
    """Returns whether the partition's equality deletes are old enough, or the partition is forced."""
    return due.reason is Reason.FORCED or has_old_deletes(due.findings)


@dataclass(frozen=True, slots=True)
class _Decided:
    """The partitions' decisions of the operation that is planned, and of the other of the two operations."""

    own: Mapping[PartitionKey, PartitionDecision]
    beside: Mapping[PartitionKey, PartitionDecision]

    def on(self, key: PartitionKey) -> list[PartitionDecision]:
        """Returns both decisions on a partition. The list is empty if the run does not cover the
        partition."""
        if key not in self.own:
            return []
        return [self.own[key], *([self.beside[key]] if key in self.beside else [])]

    def asks(self, key: PartitionKey) -> bool:
        return any(map(_asks, self.on(key)))


def _unit(
    inputs: PlanInputs,
    files: Mapping[PartitionKey, tuple[Candidate, ...]],
    decided: _Decided,
    deletes: EqualityDeletes,
) -> Unit:
    key_types = inputs.state.key_types
    data = [c.file for some in files.values() for c in some]
    applying = deletes.applying(data)
    unsupported = any(has_unsupported_key(d, key_types) for d in applying)
    width = 0 if unsupported else widest_key_bytes(applying, key_types)
    work = key_work_bytes(data, applying, width)
    unit = Unit(files, applying, width, work, unsupported, Route.REWRITE)
    return replace(unit, route=_route(inputs, unit, decided))


def _route(inputs: PlanInputs, unit: Unit, decided: _Decided) -> Route:
    policy, target_bytes = inputs.policy, inputs.target_bytes
    both = [p for key in unit.files for p in decided.on(key)]
    all_asked = unit.files.keys() <= decided.own.keys()
    if unit.unsupported or not may_convert(policy.equality_deletes):
        return Route.REWRITE
    if not policy.rewrite_data_files.enabled:
        return Route.CONVERT
    if len(unit.files) > 1 and (not all_asked or any(p.reason in _BLOCKED for p in both)):
        # The unit can only be converted as a whole, and a part of it must not be changed now.
        return Route.REWRITE
    if policy.equality_deletes.route is Route.CONVERT:
        return Route.CONVERT
    if (
        not all_asked
        or any(p.reason is Reason.FORCED for p in both)
        or not fits_a_batch(unit, policy.windows)
    ):
        return Route.REWRITE
    due = [
        c
        for key, files in unit.files.items()
        for _, group in _due_anyway(inputs, decided.own[key], files)
        for c in group
    ]
    # `native` applies positions by Iceberg's reader: a rewrite writes a deletion vector for each file, too.
    is_columnar = policy.rewrite_data_files.strategy is RewriteStrategy.COLUMNAR
    per_file = file_cost_bytes(target_bytes) if is_columnar else 0
    converting = conversion_cost_bytes(unit, due, target_bytes, per_file)
    return Route.CONVERT if converting < rewrite_cost_bytes(unit, policy.windows) else Route.REWRITE


def _due_anyway(
    inputs: PlanInputs, due: PartitionDecision, files: Iterable[Candidate]
) -> list[tuple[int, Sequence[Candidate]]]:
    """Returns the groups of these files that a rewrite takes even without equality deletes, each with its spec."""
    rules, windows = Rules.of(due, inputs).without_equality_deletes(), inputs.policy.windows
    if not rules.reasons:
        return []
    by_spec: dict[int, list[Candidate]] = defaultdict(list)
    for candidate in files:
        if rules.selects_file(candidate):
            by_spec[candidate.file.spec_id].append(candidate)
    return list(packed_groups(by_spec, rules, windows, windows.max_bytes_per_batch))
