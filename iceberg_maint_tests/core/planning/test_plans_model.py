"""Any table, any policy: what both operations' plans of it must hold, by the scan rules written a second time."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_maint.core.commits.planned_files import (
    PlannedFile,
    planned_data_files,
    planned_delete_files,
    unknown_deletes,
)
from iceberg_maint.core.decisions.history import PartitionHistory, TableHistory
from iceberg_maint.core.decisions.windows import BLOCKED
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.partition_key import PartitionSpec
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.model.table_state import FileKind, LiveFile
from iceberg_maint.core.planning.plan import Batch, Plan
from iceberg_maint.core.policy.data import EqualityDeletesPolicy, Policy, Route
from iceberg_maint.core.policy.runs import WindowsPolicy
from iceberg_maint_tests.support.core.equality_deletes import cleaning, equality, healthy
from iceberg_maint_tests.support.core.values import (
    BY_P,
    data,
    decide,
    delete,
    plan,
    policy_of,
    rewrite_policy,
    small,
    table_of,
)
from iceberg_maint_tests.support.examples import examples
from iceberg_maint_tests.support.fakes.catalog import FakeTable

pytestmark = pytest.mark.slow

EQ, DV = FileKind.EQUALITY_DELETES, FileKind.DELETION_VECTOR
EITHER = CONVERT, REWRITE = Operation.CONVERT_EQUALITY_DELETES, Operation.REWRITE_DATA_FILES
OTHER = {CONVERT: REWRITE, REWRITE: CONVERT}
SPECS = (BY_P, PartitionSpec(1, ()))
TYPES = {1: "long", 2: "int", 3: "double"}
DONE = (Reason.HEALTHY, Reason.DISABLED)
GAINLESS = (Reason.NO_GAIN, Reason.FILE_TOO_LARGE, Reason.UNSUPPORTED_KEY)
KEYS = [(1,), (1,), (2,), (1, 2), (3,)]

sizes = st.sampled_from([5, 10, 30, 74, 75, 100, 180, 250])
numbers = st.integers(1, 6)


@st.composite
def tables(draw: st.DrawFn) -> FakeTable:
    files: list[LiveFile] = []
    names = itertools.count()
    for key, spec_id in (("p=a", 0), ("p=b", 0), ("p=c", 0), ("__all__", 1)):
        place = {"partition": key, "spec_id": spec_id}
        for size in draw(st.lists(sizes, max_size=8)):
            path = f"{key}/{next(names)}"
            files.append(data(path, size, seq=draw(numbers), **place))  # type: ignore[arg-type]
            if draw(st.integers(0, 5)) == 0:
                files.append(delete(f"{path}.dv", DV, of=path, seq=6, **place))  # type: ignore[arg-type]
        few = 1 if key == "__all__" else 3
        for seq in draw(st.lists(numbers, max_size=few)):
            keys = draw(st.sampled_from(KEYS))
            files.append(delete(f"{key}/e{next(names)}", EQ, seq=seq, keys=keys, **place))  # type: ignore[arg-type]
    return typed(table_of(files, specs=SPECS, format_version=3))


def typed(table: FakeTable) -> FakeTable:
    return replace(table, state=replace(table.state, key_types=TYPES))


policies = st.builds(
    lambda route, age, batch, files, parts, run, most, enabled: policy_of(
        rewrite_policy(equality_delete_max_age_seconds=age, enabled=enabled),
        WindowsPolicy(
            max_bytes_per_batch=batch,
            max_files_per_batch=files,
            max_partitions_per_batch=parts,
            max_bytes_per_run=run,
            max_partitions_per_run=most,
        ),
        equality_deletes=EqualityDeletesPolicy(route=route),
    ),
    st.sampled_from(list(Route)),
    st.sampled_from([0, 0, 2, 4]),
    st.sampled_from([120, 300, 10_000]),
    st.sampled_from([2, 5, 5000]),
    st.sampled_from([1, 2, 10]),
    st.sampled_from([150, 800, None]),
    st.sampled_from([1, 2, None]),
    st.integers(0, 6).map(lambda i: i > 0),
)


def applies(deletion: LiveFile, file: LiveFile) -> bool:
    """Spec, "Scan Planning"; spec 1 is the unpartitioned one."""
    older = file.data_sequence_number < deletion.data_sequence_number
    return older and (deletion.spec_id == 1 or deletion.partition == file.partition)


def both(table: FakeTable, policy: Policy) -> tuple[Plan, Plan]:
    converted, rewritten = (plan(table, policy, decide(table, policy, operation=o)) for o in EITHER)
    return converted, rewritten


def data_of(table: FakeTable) -> list[LiveFile]:
    return [f for f in table.live_files if f.kind is FileKind.DATA]


def deletes_of(table: FakeTable) -> list[LiveFile]:
    return [f for f in table.live_files if f.kind is EQ]


def check(batch: Batch, table: FakeTable) -> None:
    """The batch carries what applies to its files and drops what nobody else needs."""
    held = batch.paths()
    listed = {d.path: d for d in batch.equality_deletes}
    assert len(listed) == len(batch.equality_deletes)
    for deletion in deletes_of(table):
        on = {f.path for f in data_of(table) if applies(deletion, f)}
        if on & held:
            assert deletion.path in listed
        if deletion.path in listed:
            assert listed[deletion.path].drop is (on <= held)
            assert set(deletion.equality_ids) <= {1, 2} or not batch.groups
    under = {f.path for f in data_of(table) if any(applies(d, f) for d in deletes_of(table))}
    if batch.operation == REWRITE:
        applies_deletes = batch.work.memory is not None
        assert applies_deletes is bool(held & under)
        assert applies_deletes or not any(f.path in under for g in batch.groups for f in g.files)
        return
    assert (batch.strategy, held <= under) == ("convert", True)
    assert all(d.drop for d in batch.equality_deletes)
    assert batch.equality_deletes


@settings(max_examples=examples(400), deadline=None)
@given(table=tables(), policy=policies)
def test_plans_share_no_partition_drop_only_what_is_free_and_hold_their_caps(
    table: FakeTable, policy: Policy
) -> None:
    converted, rewritten = both(table, policy)
    assert both(table, policy) == (converted, rewritten)
    touched = [
        {p for b in found.batches for p in (g.partition for g in b.groups)}
        for found in (converted, rewritten)
    ]
    assert not touched[0] & touched[1]
    windows = policy.windows
    for found in (converted, rewritten):
        taken = Counter(f.path for b in found.batches for g in b.groups for f in g.files)
        gone = Counter(d.path for b in found.batches for d in b.equality_deletes if d.drop)
        assert {*taken.values(), *gone.values()} <= {1}
        for batch in found.batches:
            check(batch, table)
            live = set(map(PlannedFile.of_live, table.live_files))
            assert {*planned_data_files(batch), *planned_delete_files(batch)} <= live
            assert unknown_deletes(batch) == frozenset()
            assert batch.input_files <= windows.max_files_per_batch
            assert len({g.partition for g in batch.groups}) <= windows.max_partitions_per_batch
            assert batch.input_bytes <= windows.max_bytes_per_batch
        assert windows.max_bytes_per_run is None or found.input_bytes <= windows.max_bytes_per_run


@settings(max_examples=examples(300), deadline=None)
@given(table=tables(), policy=policies)
def test_rewrite_before_a_conversion_shares_no_file_with_it_and_keeps_what_others_need(
    table: FakeTable, policy: Policy
) -> None:
    decisions = {o: decide(table, policy, operation=o) for o in EITHER}
    rewritten = plan(table, policy, decisions[REWRITE], before_conversion=True)
    paths = frozenset(path for b in rewritten.batches for path in b.paths())
    converted = plan(table, policy, decisions[CONVERT], rewritten=paths)
    assert not paths & {path for b in converted.batches for path in b.paths()}
    for batch in rewritten.batches:
        check(batch, table)
    rest = replace(table, live_files=tuple(f for f in table.live_files if f.path not in paths))
    for batch in converted.batches:
        check(batch, rest)
    alone = plan(table, policy, decisions[REWRITE])
    left = {path for b in alone.batches for path in b.paths()}
    if policy.windows.max_bytes_per_run is None:
        assert left <= paths


def cleaned(table: FakeTable, found: Plan) -> FakeTable:
    """The table once the plan is committed."""
    assert table.state.snapshot is not None
    number = table.state.snapshot.sequence_number
    files = {f.path: f for f in table.live_files}
    fresh = itertools.count()
    for batch in found.batches:
        for gone in batch.equality_deletes:
            if gone.drop:
                del files[gone.path]
        for group in batch.groups:
            place = {"partition": group.partition, "spec_id": group.spec_id}
            for file in group.files:
                vector = f"{file.path}.dv"
                if batch.operation == CONVERT:
                    files[vector] = delete(vector, DV, of=file.path, seq=number, **place)  # type: ignore[arg-type]
                else:
                    del files[file.path]
                    files.pop(vector, None)
            parts = group.expected_output_files if batch.operation == REWRITE else 0
            for i in range(parts):
                path = f"{found.plan_id}/{next(fresh)}"
                size = group.input_bytes // parts + (i < group.input_bytes % parts)
                files[path] = data(path, size, seq=number, **place)  # type: ignore[arg-type]
    healed = typed(table_of(files.values(), specs=SPECS, format_version=3))
    # Sequence numbers stay as they were; what is live no longer shows all of them.
    return FakeTable(replace(healed.state, snapshot=table.state.snapshot), healed.live_files)


def supported(table: FakeTable) -> FakeTable:
    """The table without deletes whose keys cannot be matched."""
    return FakeTable(table.state, tuple(f for f in table.live_files if 3 not in f.equality_ids))


def looped(
    table: FakeTable, policy: Policy, *, rewrites_first: bool = False
) -> tuple[FakeTable, dict[Operation, TableHistory], set[str]]:
    """As the loop does it: a conversion, with `rewrites_first` after a rewrite, then a rewrite of what is then there, until
    nothing is due; what gains nothing is held. The table then, the histories, the partitions with something too large."""
    held: dict[Operation, dict[str, PartitionHistory]] = {o: {} for o in EITHER}
    too_large: set[str] = set()
    for _ in range(80):
        worked = False
        for first, operation in ((True, REWRITE), (False, CONVERT), (False, REWRITE)):
            if first and not rewrites_first:
                continue
            past, beside = (TableHistory(partitions=dict(held[o])) for o in (operation, OTHER[operation]))
            decision = decide(table, policy, past, beside=beside, operation=operation)
            found = plan(table, policy, decision, before_conversion=first)
            gainless = {left.partition for left in found.leftovers if left.reason in GAINLESS}
            gainless -= {p for b in found.batches for p in b.partitions} | held[operation].keys()
            held[operation] |= dict.fromkeys(gainless, PartitionHistory(quarantined=True))
            too_large |= {left.partition for left in found.leftovers if left.reason is Reason.FILE_TOO_LARGE}
            table = cleaned(table, found)
            worked = worked or bool(found.batches or gainless)
        if not worked:
            return table, {o: TableHistory(partitions=held[o]) for o in held}, too_large
    pytest.fail("still planning after 80 rounds")


@settings(max_examples=examples(300), deadline=None)
@given(table=tables().map(supported), policy=policies, rewrites_first=st.booleans())
def test_plans_reach_a_table_without_equality_deletes(
    table: FakeTable, policy: Policy, rewrites_first: bool
) -> None:
    """What stays is what a cap or the policy keeps from being done."""
    if table.state.snapshot is None:
        return
    policy = replace(
        policy, rewrite_data_files=replace(policy.rewrite_data_files, equality_delete_max_age_seconds=0)
    )
    table, _, too_large = looped(table, policy, rewrites_first=rewrites_first)
    kept = {
        p.partition
        for p in decide(table, policy, operation=CONVERT).partitions
        if any(f.reason is Reason.EQUALITY_DELETES for f in p.findings)
    }
    if not policy.rewrite_data_files.enabled:
        return
    # What is kept everywhere by one file that is too large is kept of its whole unit.
    assert not kept or too_large
    assert kept or not deletes_of(table)


@settings(max_examples=examples(150), deadline=None)
@given(table=tables(), policy=policies, rewrites_first=st.booleans())
def test_plans_leave_nothing_waiting_behind_what_neither_operation_does(
    table: FakeTable, policy: Policy, rewrites_first: bool
) -> None:
    """However small the windows, in the end only what an operation holds is due."""
    if table.state.snapshot is None:
        return
    table, held, _ = looped(table, policy, rewrites_first=rewrites_first)
    for operation in EITHER:
        beside = held[OTHER[operation]]
        found = decide(table, policy, held[operation], beside=beside, operation=operation)
        waiting = {p.partition for p in found.partitions if p.reason not in (*DONE, *BLOCKED)}
        assert waiting <= beside.partitions.keys()


def test_partitions_whose_worst_is_the_other_operations_do_not_starve() -> None:
    """By its own scores the conversion would take p=a, which is to be rewritten, and the rewrite p=b,
    which is to be converted; neither would ever come to the other one."""
    a = [*small(6), *(equality(f"a{i}") for i in range(3))]
    b = [*small(30, partition="p=b"), healthy("b", partition="p=b"), equality("b0", partition="p=b")]
    table = typed(table_of([*a, *b], format_version=3))
    policy = cleaning(WindowsPolicy(max_partitions_per_run=1))
    assert [[p.partition for p in decide(table, policy, operation=o).due()] for o in EITHER] == [
        ["p=b"],
        ["p=b"],
    ]
    table, _, _ = looped(table, policy)
    assert deletes_of(table) == []
