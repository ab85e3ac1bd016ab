"""When position deletes are due, and what is planned for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.commits.intent import intent_of
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.reasons import Decision, Reason, Verdict
from iceberg_maint.core.model.table_state import FileKind, LiveFile
from iceberg_maint.core.planning.plan import Batch, Leftover, Plan
from iceberg_maint.core.policy.data import Policy, RewritePositionDeleteFilesPolicy
from iceberg_maint.core.policy.runs import WindowsPolicy
from iceberg_maint.ports.engine import WrittenFile
from iceberg_maint_tests.support.core.values import data, decide, delete, plan, policy_of, table_of
from iceberg_maint_tests.support.fakes.catalog import FakeTable

MERGE = Operation.REWRITE_POSITION_DELETE_FILES
VECTOR, EQUALITY = FileKind.DELETION_VECTOR, FileKind.EQUALITY_DELETES


def eager(**windows: int) -> Policy:
    """One position delete file too many is enough."""
    merging = RewritePositionDeleteFilesPolicy(min_input_files=1)
    return policy_of(windows=WindowsPolicy(**windows), rewrite_position_delete_files=merging)  # type: ignore[arg-type]


def decided(table: FakeTable, policy: Policy | None = None, **more: bool) -> Decision:
    return decide(table, policy or policy_of(), operation=MERGE, **more)


def planned(table: FakeTable, policy: Policy | None = None) -> Plan:
    policy = policy or eager()
    return plan(table, policy, decided(table, policy))


def taken(batch: Batch) -> tuple[list[str], list[str]]:
    """The delete files that are read, and those that are not."""
    read = sorted(d.path for d in batch.position_deletes if not d.void)
    return read, sorted(d.path for d in batch.position_deletes if d.void)


def examined(batch: Batch) -> dict[str, tuple[str, ...]]:
    return {f.path: f.delete_files for g in batch.groups for f in g.files}


def healthy(path: str, *, seq: int = 1, added: int | None = None) -> LiveFile:
    return replace(data(path, 100, seq=seq, records=1000), file_sequence_number=added)


# due


def test_five_more_than_one_per_data_file_are_due() -> None:
    files = [healthy("a"), *(delete(f"d{n}", of="a", seq=n + 2) for n in range(6))]
    found = decided(table_of(files))
    assert (found.verdict, found.reason) == (Verdict.RUN, Reason.POSITION_DELETES)
    [finding] = [f for p in found.partitions for f in p.findings]
    assert (finding.metric, finding.value, finding.threshold) == ("mergeable_delete_files", 5, 5)
    assert decided(table_of(files[:-1])).reason is Reason.HEALTHY


def test_delete_files_that_may_name_several_files_all_count() -> None:
    files = [healthy("a"), healthy("b"), *(delete(f"d{n}", seq=n + 2) for n in range(5))]
    assert decided(table_of(files)).reason is Reason.POSITION_DELETES
    assert decided(table_of(files[:-1])).reason is Reason.HEALTHY


def test_in_v3_five_of_any_are_due() -> None:
    files = [*(healthy(f"a{n}") for n in range(5)), *(delete(f"d{n}", of=f"a{n}") for n in range(5))]
    assert decided(table_of(files)).reason is Reason.HEALTHY
    assert decided(table_of(files, format_version=3)).reason is Reason.POSITION_DELETES
    assert decided(table_of(files[:-1], format_version=3)).reason is Reason.HEALTHY


@pytest.mark.parametrize(
    "void",
    [
        delete("d", of="gone"),
        delete("d", VECTOR, of="gone"),
        delete("d", seq=1),
        delete("d", seq=4),
        delete("d", of="a", seq=2),
    ],
    ids=[
        "file gone",
        "vector of a file gone",
        "older than all",
        "older than all were added",
        "older than its file",
    ],
)
def test_delete_that_marks_nothing_is_due_unless_the_operation_is_off(void: LiveFile) -> None:
    table = table_of([healthy("a", seq=3, added=5), healthy("b", seq=4, added=5), void])
    found = decided(table)
    assert (found.reason, [f.metric for p in found.partitions for f in p.findings]) == (
        Reason.POSITION_DELETES,
        ["dangling_position_delete_files"],
    )
    off = policy_of(rewrite_position_delete_files=RewritePositionDeleteFilesPolicy(enabled=False))
    assert decided(table, off).reason is Reason.DISABLED


def test_dangling_delete_counts_for_no_rewrite() -> None:
    files = [healthy("a", added=5), delete("d", seq=4, records=900)]
    assert decide(table_of(files), policy_of()).reason is Reason.HEALTHY
    assert decide(table_of([healthy("a"), *files[1:]]), policy_of()).reason is Reason.DELETE_RATIO


def test_operation_that_is_off_is_skipped() -> None:
    off = policy_of(rewrite_position_delete_files=RewritePositionDeleteFilesPolicy(enabled=False))
    found = decided(table_of([healthy("a"), delete("d", of="gone")]), off)
    assert (found.verdict, found.reason) == (Verdict.SKIP, Reason.DISABLED)
    assert found.evidence == {"key": "rewrite_position_delete_files.enabled"}


def test_force_takes_what_is_little_and_not_what_is_nothing() -> None:
    one_too_many = [healthy("a"), delete("d", of="a"), delete("e", of="a")]
    assert decided(table_of(one_too_many), force=True).reason is Reason.FORCED
    assert decided(table_of(one_too_many[:-1]), force=True).reason is Reason.HEALTHY
    assert decided(table_of(one_too_many[:-1], format_version=3), force=True).reason is Reason.FORCED


# planned


def test_files_of_two_deletes_are_merged_and_those_of_one_left() -> None:
    files = [
        healthy("a"),
        healthy("b"),
        delete("a1", of="a"),
        delete("a2", of="a", seq=3),
        delete("b1", of="b"),
    ]
    [batch] = planned(table_of(files)).batches
    assert taken(batch) == (["a1", "a2"], [])
    assert examined(batch) == {"a": ("a1", "a2")}
    assert (batch.partitions, batch.input_bytes, batch.reasons) == (("p=a",), 10, (Reason.POSITION_DELETES,))


def test_delete_of_several_files_is_taken_with_every_file_that_is_no_newer() -> None:
    """Also with one that a rewrite has added since, which it can mark no row of: its number is the same."""
    files = [
        healthy("a"),
        healthy("rewritten", seq=3, added=9),
        healthy("newer", seq=4),
        delete("shared", seq=3),
        delete("a1", of="a"),
        delete("r1", of="rewritten", seq=9),
        delete("n1", of="newer", seq=9),
        delete("e", EQUALITY, seq=9),
    ]
    [batch] = planned(table_of(files)).batches
    assert taken(batch) == (["a1", "shared"], [])
    assert examined(batch) == {"a": ("a1", "shared"), "rewritten": ("r1", "shared")}


def test_in_v3_all_position_deletes_of_a_file_become_its_vector() -> None:
    files = [
        healthy("a"),
        healthy("rewritten", seq=3, added=9),
        healthy("vector"),
        delete("shared", seq=3),
        delete("r1", of="rewritten", seq=9),
        delete("v1", of="vector"),
        delete("v", VECTOR, of="vector", seq=4),
    ]
    [batch] = planned(table_of(files, format_version=3)).batches
    assert taken(batch) == (["r1", "shared"], ["v1"])
    assert examined(batch) == {"a": ("shared",), "rewritten": ("r1", "shared"), "vector": ("v",)}


def test_deletes_of_files_that_are_gone_go_unread_and_with_them_no_file_is_examined() -> None:
    vectors = [replace(delete("puffin", VECTOR, of="gone"), content_offset=n) for n in (4, 44)]
    files = [healthy("a"), delete("lonely", of="gone"), delete("old", seq=0), *vectors]
    [batch] = planned(table_of(files)).batches
    assert taken(batch) == ([], ["lonely", "old", "puffin", "puffin"])
    assert (batch.groups, batch.partitions, batch.input_bytes) == ((), ("p=a",), 0)
    assert intent_of(batch, ()).replaced == {
        ("lonely", None),
        ("old", None),
        ("puffin", 4),
        ("puffin", 44),
    }


def test_nothing_goes_unread_where_health_counted_something_else() -> None:
    """A file that lies in another partition than its deletes is not among those a plan reads."""
    table = table_of([healthy("a"), delete("d", of="gone"), delete("e", of="gone")])
    decision = decided(table)
    [due] = decision.partitions
    [finding] = due.findings
    less = replace(decision, partitions=(replace(due, findings=(replace(finding, value=1),)),))
    assert plan(table, policy_of(), less).leftovers == (Leftover("p=a", Reason.NO_GAIN),)


def test_delete_that_can_mark_nothing_is_read_all_the_same() -> None:
    files = [healthy("a", seq=3, added=5), delete("d", seq=4)]
    [batch] = planned(table_of(files)).batches
    assert taken(batch) == (["d"], [])
    assert examined(batch) == {"a": ("d",)}


def test_parts_that_may_be_done_apart_fill_batches_and_the_rest_is_left() -> None:
    files = [healthy(path) for path in "abc"]
    files += [delete(f"{path}{n}", of=path, seq=n + 2) for path in "abc" for n in range(2)]
    found = planned(table_of(files), eager(max_files_per_batch=4))
    assert [taken(b)[0] for b in found.batches] == [["a0", "a1", "b0", "b1"], ["c0", "c1"]]
    found = planned(table_of(files), eager(max_bytes_per_run=20))
    assert [taken(b)[0] for b in found.batches] == [["a0", "a1", "b0", "b1"]]
    assert found.leftovers == (Leftover("p=a", Reason.RUN_BUDGET, 2, 10),)


def test_delete_of_more_files_than_a_batch_may_hold_is_left() -> None:
    files = [healthy("a"), healthy("b"), healthy("c"), delete("d"), delete("e")]
    found = planned(table_of(files), eager(max_files_per_batch=2))
    assert (found.batches, found.leftovers) == ((), (Leftover("p=a", Reason.FILE_TOO_LARGE, 2, 10),))


def test_new_delete_file_keeps_the_highest_number_of_those_of_its_data_file() -> None:
    files = [healthy("a"), healthy("b"), delete("d", seq=2), delete("e", seq=7), delete("b1", of="b", seq=5)]
    files += [delete("b2", of="b", seq=9), healthy("c", seq=8)]
    [batch] = planned(table_of(files)).batches
    [group] = batch.groups
    written = [
        WrittenFile(f"new-{p}", 1, 1, 0, 0, "", FileKind.POSITION_DELETES, None, p) for p in ("a", "b")
    ]
    assert [f.path for f in group.files] == ["a", "b"]
    assert {d.data_file: d.data_sequence_number for d in intent_of(batch, written).deletes} == {
        "a": 7,
        "b": 9,
    }
