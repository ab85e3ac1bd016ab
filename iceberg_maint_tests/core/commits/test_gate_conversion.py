"""The gate's rules on values, each alone: conversions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.commits.change import STALE_RULES, Rule
from iceberg_maint.core.commits.gate_rules import check
from iceberg_maint.core.commits.intent import AddedDelete, intent_of
from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.planning.plan import BatchBody
from iceberg_maint.core.planning.work import EqualityDeleteFile, FileGroup, InputFile, RewriteDataFiles
from iceberg_maint.ports.engine import WrittenFile
from iceberg_maint_tests.support.core.conversions import (
    EQUALITY,
    POSITIONS,
    VECTOR,
    broken,
    converted,
    deleted,
    mark,
)
from iceberg_maint_tests.support.core.memory_table import (
    ALL,
    P1,
    P2,
    Q1,
    File,
    Lake,
    Place,
    change_of,
    intent_on,
    rewritten,
    table_of,
)


@pytest.mark.parametrize("version", [2, 3])
def test_conversion_as_planned_breaks_no_rule(version: int) -> None:
    pinned, vector = deleted(), version == 3
    marks = mark("f1", P1, 5, vector=vector), mark("f3", Q1, 5, vector=vector)
    intended, new = converted(pinned, pinned, *marks, drop=["ea", "eb"], version=version)
    assert broken(pinned, pinned, intended, new) == set()
    assert pinned.rows() == new.rows() == [2]


def test_conversion_of_one_partition_breaks_no_rule() -> None:
    pinned = deleted()
    intended, new = converted(pinned, pinned, mark("f1", P1, 5), drop=["ea"], examined=["f1", "f2"])
    assert broken(pinned, pinned, intended, new) == set()
    assert pinned.rows() == new.rows() == [2]


def test_conversion_that_removes_or_adds_a_data_file_is_refused() -> None:
    pinned = deleted()
    marks = mark("f1", P1, 5), mark("f3", Q1, 5)
    intended, new = converted(pinned, pinned, *marks, drop=["ea", "eb"], without=["f2"])
    assert broken(pinned, pinned, intended, new) == {Rule.REMOVED_FILES, Rule.LIVE_COUNT}
    more = pinned.commit(*marks, File("alien", P1, 5), operation="overwrite", without=["ea", "eb"])
    assert broken(pinned, pinned, intended, more) == {
        Rule.ADDED_FILES,
        Rule.LIVE_COUNT,
        Rule.SEQUENCE_NUMBER,
    }


def test_conversion_with_another_mark_than_written_is_refused() -> None:
    pinned = deleted()
    intended, new = converted(pinned, pinned, mark("f1", P1, 5), drop=["ea"], examined=["f1", "f2"])
    other = pinned.commit(mark("f2", P1, 5), operation="delete", without=["ea"])
    assert broken(pinned, pinned, intended, other) == {Rule.ADDED_FILES}
    missing = pinned.commit(operation="delete", without=["ea"])
    assert broken(pinned, pinned, intended, missing) == {Rule.ADDED_FILES}
    assert (new.rows(), other.rows(), missing.rows()) == ([2], [1], [1, 2])


@pytest.mark.parametrize(
    ("version", "changed"),
    [
        (2, {"kind": VECTOR}),
        (2, {"kind": EQUALITY}),
        (2, {"referenced": None}),
        (2, {"referenced": "f3"}),
        (2, {"place": Q1}),
        (2, {"place": P2}),
        (2, {"positions": frozenset({("f1", 0), ("f1", 1)})}),
        (3, {"kind": POSITIONS}),
        (3, {"place": Q1}),
        (3, {"place": ALL}),
    ],
)
def test_mark_unlike_the_intended_one_is_refused(version: int, changed: dict[str, object]) -> None:
    pinned = deleted()
    good = mark("f1", P1, 5, vector=version == 3)
    intended, _ = converted(pinned, pinned, good, drop=["ea"], examined=["f1", "f2"], version=version)
    wrong = pinned.commit(replace(good, **changed), operation="delete", without=["ea"])  # type: ignore[arg-type]
    assert broken(pinned, pinned, intended, wrong) == {Rule.ADDED_FILES}


@pytest.mark.parametrize("data_file", ["f2", None])
def test_mark_of_a_file_that_is_not_of_its_group_is_refused(data_file: str | None) -> None:
    pinned = deleted()
    good = replace(mark("f2", P1, 5), referenced=data_file)
    intended, new = converted(pinned, pinned, mark("f1", P1, 5), drop=["ea"])
    [group, other] = intended.groups
    of_f2 = AddedDelete(("p5-f2", None), POSITIONS, data_file, 1)
    intended = replace(intended, groups=(replace(group, deletes=(of_f2,), examined=frozenset({"f1"})), other))
    new = pinned.commit(good, operation="delete")
    intended = replace(intended, dropped=frozenset())
    assert broken(pinned, pinned, intended, new) == {Rule.ADDED_FILES}


def test_mark_with_another_sequence_number_than_the_commits_is_refused() -> None:
    pinned = deleted()
    intended, new = converted(pinned, pinned, mark("f1", P1, 3), drop=["ea"], examined=["f1", "f2"])
    assert broken(pinned, pinned, intended, new) == {Rule.SEQUENCE_NUMBER}


def test_group_whose_key_names_no_partition_of_the_table_is_refused() -> None:
    pinned = deleted()
    intended, new = converted(pinned, pinned, mark("f1", P1, 5), drop=["ea"], examined=["f1", "f2"])
    [group] = intended.groups
    for key in ("q=a", "spec=9/p=a", "spec=2/p=a"):
        other = replace(intended, groups=(replace(group, partition=key),))
        assert broken(pinned, pinned, other, new) == {Rule.ADDED_FILES}


def test_mark_in_a_partition_of_floats_breaks_no_rule() -> None:
    place: Place = (3, (-0.0,))
    pinned = table_of(place).commit(File("e", place, 2, EQUALITY, keys=frozenset({1})), operation="delete")
    intended, new = converted(pinned, pinned, mark("f1", place, 3), drop=["e"])
    assert broken(pinned, pinned, intended, new) == set()


def test_marks_beside_older_ones_open_no_older_manifest() -> None:
    pinned = table_of(P1).commit(mark("f1", P1, 2), operation="delete")
    pinned = pinned.commit(File("e", P1, 3, EQUALITY, keys=frozenset({1})), operation="delete")
    intended, new = converted(pinned, pinned, mark("f1", P1, 4), drop=["e"])
    assert intended.deletes[0].before == ("p2-f1",)
    opened: list[str] = []
    assert check(intended, change_of(pinned, pinned, new, opened, intended)) == ()
    assert "m2-0" not in opened


def test_mark_of_a_file_that_is_gone_since_the_plan_is_stale() -> None:
    pinned = deleted()
    base = pinned.commit(File("new", P1, 4, rows=(2,)), operation="replace", without=["f1", "f2"])
    intended, new = converted(pinned, base, mark("f1", P1, 6), drop=["ea"], examined=["f1", "f2"])
    assert broken(pinned, base, intended, new) == {Rule.LOST_FILE}
    assert Rule.LOST_FILE in STALE_RULES


def test_mark_of_a_file_that_moved_to_another_manifest_breaks_no_rule() -> None:
    pinned = deleted()
    moved = {m: f for m, f in pinned.manifests.items() if not m.startswith(("m1-", "m2-"))}
    base = replace(pinned.commit(operation="replace"), manifests={**moved, "m1-0~5": pinned.data[:2]})
    intended, new = converted(pinned, base, mark("f1", P1, 6), drop=["ea"], examined=["f1", "f2"])
    assert broken(pinned, base, intended, new) == set()


# deletion vectors


def vectored() -> Lake:
    """File f1 of rows 1, 2, 3, of which a deletion vector marks the first and an equality delete the second."""
    lake = Lake().commit(File("f1", P1, 1, rows=(1, 2, 3))).commit(File("f2", P1, 2, rows=(4,)))
    lake = lake.commit(mark("f1", P1, 3, 0, vector=True), operation="delete")
    return lake.commit(File("e", P1, 4, EQUALITY, keys=frozenset({2})), operation="delete")


def test_vector_in_place_of_the_old_one_breaks_no_rule() -> None:
    pinned = vectored()
    intended, new = converted(
        pinned, pinned, mark("f1", P1, 5, 0, 1, vector=True), drop=["e"], version=3, without=["v3-f1"]
    )
    opened: list[str] = []
    assert check(intended, change_of(pinned, pinned, new, opened, intended)) == ()
    assert [m for m in opened if m.startswith("m3-")] == ["m3-0~5", "m3-0"]
    assert pinned.rows() == new.rows() == [3, 4]


def test_vector_of_fewer_positions_than_the_old_one_is_refused() -> None:
    pinned = vectored().commit(mark("f2", P1, 5, 0, vector=True), operation="delete")
    pinned = pinned.commit(mark("f1", P1, 6, 0, 2, vector=True), operation="delete", without=["v3-f1"])
    intended, new = converted(
        pinned, pinned, mark("f1", P1, 7, 1, vector=True), drop=["e"], version=3, without=["v6-f1"]
    )
    assert broken(pinned, pinned, intended, new) == {Rule.DROPPED_DELETE}


def test_vector_removed_without_a_new_one_is_refused() -> None:
    pinned = vectored()
    intended, new = converted(pinned, pinned, drop=[], version=3, without=["v3-f1"])
    assert broken(pinned, pinned, intended, new) == {Rule.DROPPED_DELETE}


def test_vector_beside_the_old_one_is_refused() -> None:
    pinned = vectored()
    intended, new = converted(pinned, pinned, mark("f1", P1, 5, 0, 1, vector=True), drop=["e"], version=3)
    assert broken(pinned, pinned, intended, new) == {Rule.SECOND_VECTOR}


def test_two_vectors_of_one_file_are_refused() -> None:
    pinned = deleted()
    first, second = mark("f1", P1, 5, vector=True), mark("f1", P1, 5, vector=True, name="again")
    intended, new = converted(pinned, pinned, first, second, drop=["ea"], examined=["f1", "f2"], version=3)
    assert broken(pinned, pinned, intended, new) == {Rule.SECOND_VECTOR}


def test_vector_beside_position_deletes_of_before_v3_breaks_no_rule() -> None:
    lake = Lake().commit(File("f1", P1, 1, rows=(1, 2, 3)))
    lake = lake.commit(mark("f1", P1, 2, 0), operation="delete")
    pinned = lake.commit(File("e", P1, 3, EQUALITY, keys=frozenset({2})), operation="delete")
    opened: list[str] = []
    intended, new = converted(pinned, pinned, mark("f1", P1, 4, 0, 1, vector=True), drop=["e"], version=3)
    assert check(intended, change_of(pinned, pinned, new, opened, intended)) == ()
    assert "m2-0" in opened


@pytest.mark.parametrize(
    ("delete", "stale"),
    [
        (mark("f1", P1, 5, 2, vector=True), True),
        (mark("f1", P1, 5, 2), True),
        (replace(mark("f1", P1, 5, 2), referenced=None), True),
        (mark("f2", P1, 5, vector=True), False),
        (File("young", P1, 5, EQUALITY, keys=frozenset({3})), False),
    ],
)
def test_vector_of_a_file_with_newer_positions_is_stale(delete: File, stale: bool) -> None:
    pinned = vectored()
    base = pinned.commit(delete, operation="delete")
    intended, new = converted(
        pinned, base, mark("f1", P1, 6, 0, 1, vector=True), drop=["e"], version=3, without=["v3-f1"]
    )
    assert broken(pinned, base, intended, new) == ({Rule.NEW_DELETE} if stale else set())


def test_position_deletes_beside_newer_ones_break_no_rule() -> None:
    pinned = deleted()
    base = pinned.commit(mark("f1", P1, 5), operation="delete")
    intended, new = converted(pinned, base, mark("f1", P1, 6), drop=["ea"], examined=["f1", "f2"])
    assert broken(pinned, base, intended, new) == set()
    assert base.rows() == new.rows() == [2]


# the intent


def test_intent_of_conversion_names_what_is_examined_added_and_dropped() -> None:
    def deletes(path: str, *, drop: bool) -> EqualityDeleteFile:
        return EqualityDeleteFile(path, 1, "p=a", False, (1,), 4, 1, 1, drop)

    group = FileGroup("p=a", 1, 1, (InputFile("f1", 1, 1, 1, ("old",)), InputFile("f2", 1, 1, 1)), 0)
    batch = BatchBody(
        *("b", "t", "u", Operation.CONVERT_EQUALITY_DELETES, "convert", 3, 11, 5, 2, (group,), 100),
        equality_deletes=(deletes("e1", drop=True), deletes("e2", drop=False)),
    ).batch()
    vector = WrittenFile("v", 1, 7, 1, 0, "", VECTOR, 42, "f1")
    found = intent_of(batch, [vector])
    assert found.deletes == (AddedDelete(("v", 42), VECTOR, "f1", 7, ("old",)),)
    assert (found.examined, found.removed, found.added) == ({"f1", "f2"}, set(), set())
    assert found.dropped == {"e1"}
    rewrite = intent_of(replace(batch, work=RewriteDataFiles((group,))), [])
    assert (rewrite.examined, rewrite.removed) == (set(), {"f1", "f2"})


def test_rewrite_adds_no_delete_file() -> None:
    pinned = table_of(P1, P1)
    new = rewritten(pinned, pinned)
    extra = mark("new", P1, new.seq)
    intended = intent_on(pinned, pinned.data, [File("new", P1, pinned.seq)])
    [group] = intended.groups
    named = replace(
        intended, groups=(replace(group, deletes=(AddedDelete((extra.path, None), POSITIONS, "new", 1),)),)
    )
    more = replace(new, manifests={**new.manifests, f"m{new.seq}-9": (extra,)})
    assert broken(pinned, pinned, named, more) == {Rule.ADDED_FILES}


# older position deletes that a new one takes over


def marked_before(*, rows: tuple[int, ...] = (0, 1, 2)) -> Lake:
    """File f1 with positions 1 and 2 marked, by a file each, f2 with position 0, and both under an equality delete."""
    lake = Lake().commit(File("f1", P1, 1, rows=rows), File("f2", P1, 1, rows=rows))
    lake = lake.commit(mark("f1", P1, 2, 1, name="d1"), operation="delete")
    lake = lake.commit(mark("f1", P1, 3, 2, name="d2"), mark("f2", P1, 3, name="other"), operation="delete")
    shared = frozenset({("f1", 1), ("f2", 0)})
    lake = lake.commit(File("s", P1, 4, POSITIONS, positions=shared), operation="delete")
    return lake.commit(File("ea", P1, 5, EQUALITY, keys=frozenset({0})), operation="delete")


def takes_over(*paths: str, positions: tuple[int, ...] = (0, 1, 2), base: Lake | None = None) -> set[Rule]:
    pinned = marked_before()
    base = base or pinned
    mark_of_all = mark("f1", P1, base.seq + 1, *positions)
    intended, new = converted(
        pinned, base, mark_of_all, drop=["ea"], without=paths, taken={"f1": paths} if paths else None
    )
    return broken(pinned, base, intended, new)


def test_older_files_that_a_mark_takes_over_go() -> None:
    assert takes_over("d1", "d2") == set()
    assert takes_over("d2") == set()


@pytest.mark.parametrize("path", ["other", "s"])
def test_older_file_that_may_mark_another_data_file_is_not_taken_over(path: str) -> None:
    assert takes_over(path) == {Rule.REMOVED_FILES}


def test_older_file_of_no_fewer_positions_is_not_taken_over() -> None:
    """A conversion adds a position to those of every older file."""
    assert takes_over("d1", positions=(0,)) == {Rule.REMOVED_FILES}


def test_equality_delete_is_not_taken_over() -> None:
    pinned = marked_before()
    intended, new = converted(pinned, pinned, mark("f1", P1, 6, 0, 1), without=["ea"], taken={"f1": ("ea",)})
    assert Rule.REMOVED_FILES in broken(pinned, pinned, intended, new)


def test_older_file_that_is_taken_over_and_stays_is_refused() -> None:
    pinned = marked_before()
    intended, new = converted(pinned, pinned, mark("f1", P1, 6, 0, 1), drop=["ea"], taken={"f1": ("d1",)})
    assert broken(pinned, pinned, intended, new) == {Rule.REMOVED_FILES}


def test_older_file_that_came_again_since_the_plan_is_stale() -> None:
    base = marked_before().registered_again("d1")
    assert Rule.IDENTITY in takes_over("d1", base=base)


def test_older_file_that_nothing_takes_over_stays() -> None:
    pinned = marked_before()
    intended, new = converted(pinned, pinned, mark("f1", P1, 6), drop=["ea"], without=["d1"])
    assert broken(pinned, pinned, intended, new) == {Rule.DROPPED_DELETE}
