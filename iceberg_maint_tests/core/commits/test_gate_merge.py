"""The gate's rules on values, each alone: merges of position deletes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from iceberg_maint.core.commits.change import STALE_RULES, Rule
from iceberg_maint.core.commits.intent import Intent
from iceberg_maint_tests.support.core.conversions import POSITIONS, VECTOR, broken, mark
from iceberg_maint_tests.support.core.memory_table import (
    P1,
    Q1,
    File,
    Lake,
    conversion_on,
    standing_on,
    table_of,
)

SHARED = frozenset({("f1", 0), ("gone", 0)})


def marked() -> Lake:
    """Files f1 and f2 of partition a, f3 of b; a delete of a that names f1 and a file that is gone, and
    one of f1 alone."""
    lake = table_of(P1, P1, Q1).commit(File("s", P1, 4, POSITIONS, positions=SHARED), operation="delete")
    return lake.commit(mark("f1", P1, 5, name="d"), operation="delete")


def merged(
    pinned: Lake,
    base: Lake,
    *marks: File,
    drop: Iterable[str] = ("s", "d"),
    examined: Iterable[str] = ("f1", "f2"),
    version: int = 2,
    number: int = 5,
) -> tuple[Intent, Lake]:
    """A merge planned at `pinned` and committed on `base`."""
    files = [f for f in pinned.data if f.path in examined]
    intended = conversion_on(pinned, files, marks, (), version)
    groups = tuple(
        replace(g, deletes=tuple(replace(d, data_sequence_number=number) for d in g.deletes))
        for g in intended.groups
    )
    gone = frozenset((d.path, d.offset) for d in pinned.deletes if d.path in drop)
    return standing_on(pinned, replace(intended, groups=groups, replaced=gone)), base.commit(
        *marks, operation="replace", without=drop
    )


@pytest.mark.parametrize("version", [2, 3])
def test_merge_as_planned_breaks_no_rule(version: int) -> None:
    pinned = marked()
    intended, new = merged(pinned, pinned, mark("f1", P1, 5, vector=version == 3), version=version)
    assert broken(pinned, pinned, intended, new) == set()
    assert pinned.rows() == new.rows() == [2, 3]


def test_delete_dropped_that_may_mark_a_file_not_examined_is_stale() -> None:
    pinned = marked()
    intended, new = merged(pinned, pinned, mark("f1", P1, 5), examined=["f1"])
    assert broken(pinned, pinned, intended, new) == {Rule.NEEDED_DELETE}
    base = pinned.commit(File("late", P1, 3, rows=(7,)), operation="overwrite")
    intended, new = merged(pinned, base, mark("f1", P1, 5))
    assert broken(pinned, base, intended, new) == {Rule.NEEDED_DELETE}
    assert Rule.NEEDED_DELETE in STALE_RULES


def test_file_that_came_with_a_higher_number_is_no_matter() -> None:
    pinned = marked()
    base = pinned.commit(File("new", P1, 6, rows=(7,)))
    intended, new = merged(pinned, base, mark("f1", P1, 5))
    assert broken(pinned, base, intended, new) == set()


@pytest.mark.parametrize("number", [4, 6])
def test_new_delete_of_another_number_than_the_highest_replaced_is_refused(number: int) -> None:
    pinned = marked()
    intended, new = merged(pinned, pinned, mark("f1", P1, number))
    assert broken(pinned, pinned, intended, new) == {Rule.SEQUENCE_NUMBER}


def test_number_above_the_plans_is_refused() -> None:
    pinned = marked()
    base = pinned.commit(File("new", P1, 6, rows=(7,)))
    intended, new = merged(pinned, base, mark("f1", P1, 6), number=6)
    assert broken(pinned, base, intended, new) == {Rule.SEQUENCE_NUMBER}


def test_delete_to_be_replaced_that_stays_is_refused() -> None:
    pinned = marked()
    intended, _ = merged(pinned, pinned, mark("f1", P1, 5))
    new = pinned.commit(mark("f1", P1, 5), operation="replace", without=["s"])
    assert broken(pinned, pinned, intended, new) == {Rule.REMOVED_FILES}


def test_mark_that_is_not_added_is_refused() -> None:
    pinned = marked()
    intended, _ = merged(pinned, pinned, mark("f1", P1, 5))
    new = pinned.commit(operation="replace", without=["s", "d"])
    assert broken(pinned, pinned, intended, new) == {Rule.ADDED_FILES}
    assert new.rows() != pinned.rows()


def test_delete_outside_every_plan_that_vanishes_too_is_refused() -> None:
    pinned = marked().commit(mark("f3", Q1, 6, name="other"), operation="delete")
    intended, _ = merged(pinned, pinned, mark("f1", P1, 5))
    new = pinned.commit(mark("f1", P1, 5), operation="replace", without=["s", "d", "other"])
    assert broken(pinned, pinned, intended, new) == {Rule.DROPPED_DELETE}


def test_data_file_that_is_gone_since_the_plan_is_stale() -> None:
    pinned = marked()
    base = pinned.commit(operation="overwrite", without=["f1"])
    intended, new = merged(pinned, base, mark("f1", P1, 5))
    assert broken(pinned, base, intended, new) == {Rule.LOST_FILE}


def test_vector_of_a_file_that_has_one_since_the_plan_is_stale() -> None:
    pinned = marked()
    base = pinned.commit(mark("f1", P1, 6, vector=True), operation="delete")
    intended, new = merged(pinned, base, mark("f1", P1, 5, vector=True), version=3)
    assert broken(pinned, base, intended, new) == {Rule.NEW_DELETE}


def test_vector_goes_by_its_place_in_the_file() -> None:
    """Vectors of several data files share a path: the plan's is told from its neighbour by the offset."""
    pinned = table_of(P1, P1)
    two = [File(f"v-{p}", P1, 3, VECTOR, positions=frozenset({(p, 0)}), referenced=p, offset=n) for n, p in
           ((4, "gone"), (44, "f1"))]  # fmt: skip
    pinned = pinned.commit(*two, operation="delete")
    intended, new = merged(pinned, pinned, drop=["v-gone"], examined=[], version=3)
    assert broken(pinned, pinned, intended, new) == set()
    wrong = pinned.commit(operation="replace", without=["v-f1"])
    assert broken(pinned, pinned, intended, wrong) == {Rule.REMOVED_FILES, Rule.DROPPED_DELETE}
