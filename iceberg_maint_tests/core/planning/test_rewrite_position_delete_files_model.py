"""Merges of position deletes as they are planned, against a model of what readers see: none changes a
row that the gate lets pass, and none leaves something to merge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from iceberg_maint.core.commits.gate_rules import check
from iceberg_maint.core.commits.intent import Intent, intent_of
from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.health.thresholds import position_delete_findings
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Decision, PartitionDecision, Reason, Verdict
from iceberg_maint.core.model.table_state import FileKind, LiveFile
from iceberg_maint.core.planning.file_groups import PlanInputs
from iceberg_maint.core.planning.plan import Batch, BatchBody
from iceberg_maint.core.planning.rewrite_position_delete_files import plan_position_deletes
from iceberg_maint.core.policy.data import Policy, RewriteDataFilesPolicy
from iceberg_maint.core.policy.runs import WindowsPolicy
from iceberg_maint.ports.engine import WrittenFile
from iceberg_maint_tests.core.commits.test_gate_conversion_model import (
    appended,
    deleted_by_key,
    deleted_by_position,
    replaced,
    seen,
)
from iceberg_maint_tests.support.core.memory_table import SPECS, File, Lake, change_of, key_of
from iceberg_maint_tests.support.examples import examples
from iceberg_maint_tests.support.fakes.catalog import FakeTable, fake_table, measure_files

pytestmark = pytest.mark.seconds

POSITIONS, VECTOR = FileKind.POSITION_DELETES, FileKind.DELETION_VECTOR
OPERATION = Operation.REWRITE_POSITION_DELETE_FILES
POLICY = Policy(windows=WindowsPolicy(max_files_per_batch=5000))


def shared_delete(draw: st.DrawFn, lake: Lake) -> Lake:
    """A delete file of positions of any data files of one place, and of one that is not there."""
    if not lake.data:
        return lake
    place = draw(st.sampled_from(lake.data)).place
    here = [(f.path, n) for f in lake.data if f.place == place for n in range(len(f.rows))]
    marked = draw(st.frozensets(st.sampled_from([*here, ("gone", 0)]), min_size=1, max_size=4))
    seq = lake.seq + 1
    return lake.commit(File(f"s{seq}", place, seq, POSITIONS, positions=marked), operation="delete")


def table_of(lake: Lake, version: int) -> FakeTable:
    """The lake's files as a planner sees them."""
    live = [
        LiveFile(
            path=f.path,
            kind=f.kind,
            spec_id=f.place[0],
            partition=key_of(f.place),
            record_count=f.records,
            size_bytes=10,
            data_sequence_number=f.seq,
            file_format="parquet",
            referenced_data_file=f.referenced,
            content_offset=f.offset,
            equality_ids=(1,) if f.kind is FileKind.EQUALITY_DELETES else (),
            file_sequence_number=int(manifest[1:].partition("-")[0]),
        )
        for manifest, files in lake.manifests.items()
        for f in files
    ]
    return fake_table("lake.db.t", live, specs=SPECS.values(), format_version=version)


def health_of(lake: Lake, version: int) -> Mapping[str, PartitionHealth]:
    return measure_files(table_of(lake, version), RewriteDataFilesPolicy()).partitions


def planned(lake: Lake, version: int, *, force: bool) -> tuple[Batch, ...]:
    table = table_of(lake, version)
    due = tuple(
        PartitionDecision(
            key,
            Verdict.RUN,
            Reason.FORCED if force else Reason.POSITION_DELETES,
            tuple(position_delete_findings(health, POLICY.rewrite_position_delete_files, version)),
        )
        for key, health in health_of(lake, version).items()
    )
    decision = Decision("lake.db.t", OPERATION, Verdict.RUN, Reason.FORCED, None, due)
    return plan_position_deletes(PlanInputs(table.state, decision, table.live_files, POLICY, 100)).batches


@dataclass(frozen=True, slots=True)
class Merge:
    """A batch, the files written for it, and its intent."""

    batch: Batch
    marks: tuple[File, ...]
    intent: Intent


def written(pinned: Lake, batch: Batch, version: int) -> Merge:
    """What the engine writes: of each data file the positions that the deletes read mark."""
    read = {d.path for d in batch.position_deletes if not d.void}
    deletes = {d.path: d for d in pinned.deletes}
    data = {f.path: f for f in pinned.data}
    marks, files = [], []
    for number, group in enumerate(batch.groups):
        for file in group.files:
            applying = [deletes[p] for p in file.delete_files if p in read]
            positions = frozenset(m for d in applying for m in d.positions if m[0] == file.path)
            if not positions:
                continue
            seq = max(d.seq for d in applying)
            kind, offset = (VECTOR, seq) if version == 3 else (POSITIONS, None)
            place = data[file.path].place
            mark = File(
                f"c-{file.path}", place, seq, kind, positions=positions, referenced=file.path, offset=offset
            )
            marks.append(mark)
            files.append(
                WrittenFile(
                    mark.path, 1, mark.records, group.spec_id, number, "", kind, offset, mark.referenced
                )
            )
    intent = replace(
        intent_of(batch, files),
        table_uuid="u",
        schema_id=0,
        snapshot_id=pinned.seq,
        snapshot_sequence_number=pinned.seq,
    )
    return Merge(batch, tuple(marks), intent)


def history(draw: st.DrawFn, version: int) -> Lake:
    """Data under deletes of all kinds; in v3 position deletes first, vectors since the upgrade."""
    lake = Lake()
    count = draw(st.integers(2, 8))
    upgraded = draw(st.integers(0, count)) if version == 3 else count
    for step in range(count):
        what = draw(st.sampled_from(["append", "append", "key", "position", "shared", "shared", "replace"]))
        if what == "append" or not lake.data:
            lake = appended(draw, lake)
        elif what == "key":
            lake = deleted_by_key(draw, lake)
        elif what == "replace":
            lake = replaced(draw, lake)
        elif what == "shared" and step < upgraded:
            lake = shared_delete(draw, lake)
        else:
            lake = deleted_by_position(draw, lake, vectors=step >= upgraded)
    return lake


@st.composite
def merges(draw: st.DrawFn, *, honest: bool) -> tuple[int, Lake, Lake, Lake, Merge]:
    """Format version, the table at the pinned snapshot, at the base and after our commit, and our merge.

    The positions are always right, as the proof has it. Beside an honest merge others only append and
    delete by key; beside a dishonest one they do anything, and the commit is not what was intended.
    """
    version = draw(st.sampled_from([2, 3]))
    pinned = history(draw, version)
    batches = planned(pinned, version, force=draw(st.booleans()))
    merge = written(pinned, batches[0], version) if batches else None
    lake = pinned
    for _ in range(draw(st.integers(0, 3))):
        what = draw(st.sampled_from(["append", "key", "position", "old", "replace"]))
        if what == "append" or (honest and what in ("position", "old", "replace")):
            lake = appended(draw, lake)
        elif what == "key":
            lake = deleted_by_key(draw, lake)
        elif what == "position":
            lake = deleted_by_position(draw, lake, vectors=version == 3)
        else:
            lake = appended(draw, lake, old=True) if what == "old" else replaced(draw, lake)
    if merge is None:
        batch = replace(planned_nothing(), format_version=version)
        merge = written(pinned, batch, version)
    gone = {d.path for d in merge.batch.position_deletes}
    marks = merge.marks
    if not honest:
        if lake.files and draw(st.booleans()):
            gone |= draw(st.sets(st.sampled_from([f.path for f in lake.files]), max_size=1))
        marks = tuple(m for m in marks if draw(st.integers(0, 9)))
        marks = tuple(replace(m, seq=m.seq if draw(st.integers(0, 9)) else lake.seq + 1) for m in marks)
    return version, pinned, lake, lake.commit(*marks, operation="replace", without=gone), merge


def planned_nothing() -> Batch:
    return BatchBody("b", "lake.db.t", "u", OPERATION, "merge", 2, 1, 1, 0, (), 100).batch()


@settings(max_examples=examples(600), deadline=None)
@given(merges(honest=False))
def test_merge_that_the_gate_lets_pass_changes_no_row(case: tuple[int, Lake, Lake, Lake, Merge]) -> None:
    _, pinned, base, new, merge = case
    broken = check(merge.intent, change_of(pinned, base, new, intent=merge.intent))
    event("refused" if broken else "passed")
    if seen(base) != seen(new):
        event("rows would change")
        assert broken


@settings(max_examples=examples(400), deadline=None)
@given(merges(honest=True))
def test_honest_merge_passes_the_gate_and_changes_no_row(case: tuple[int, Lake, Lake, Lake, Merge]) -> None:
    _, pinned, base, new, merge = case
    assert check(merge.intent, change_of(pinned, base, new, intent=merge.intent)) == ()
    assert seen(base) == seen(new)
    event("merged" if merge.marks else "dropped" if merge.batch.position_deletes else "nothing")


@st.composite
def tables(draw: st.DrawFn) -> tuple[int, Lake]:
    version = draw(st.sampled_from([2, 3]))
    return version, history(draw, version)


@settings(max_examples=examples(300), deadline=None)
@given(tables())
def test_merge_of_all_leaves_nothing_to_merge_and_nothing_that_marks_no_row(case: tuple[int, Lake]) -> None:
    version, lake = case
    before = seen(lake)
    while batches := planned(lake, version, force=True):
        merge = written(lake, batches[0], version)
        after = lake.commit(
            *merge.marks,
            operation="replace",
            without=[d.path for d in merge.batch.position_deletes],
        )
        assert len(after.deletes) < len(lake.deletes) or any(
            d.referenced_data_file is None or version == 3 for d in merge.batch.position_deletes
        )
        lake = after
    assert seen(lake) == before
    for health in health_of(lake, version).values():
        left = health.position_delete_files if version == 3 else health.mergeable_delete_files
        assert (left, health.dangling_position_delete_files) == (0, 0)
