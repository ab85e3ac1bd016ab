"""The gate's rules on values, each alone: equality deletes that a commit drops, and what is read for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.commits import manifest_diff
from iceberg_maint.core.commits.change import STALE_RULES, Rule
from iceberg_maint.core.commits.gate_rules import check
from iceberg_maint.core.commits.intent import Intent
from iceberg_maint_tests.support.core.conversions import EQUALITY, broken, converted, deleted, mark
from iceberg_maint_tests.support.core.memory_table import (
    ALL,
    P1,
    Q1,
    File,
    Lake,
    change_of,
    intent_on,
    standing_on,
    table_of,
)


def test_drop_of_deletes_that_apply_to_nothing_breaks_no_rule() -> None:
    pinned = table_of(P1).commit(File("e", Q1, 2, EQUALITY), File("d", ALL, 1, EQUALITY), operation="delete")
    intended, new = converted(pinned, pinned, drop=["e", "d"], examined=[])
    assert (intended.groups, intended.dropped) == ((), {"e", "d"})
    assert broken(pinned, pinned, intended, new) == set()


@pytest.mark.parametrize(
    ("drop", "examined"),
    [
        (["ea"], ["f1"]),  # f2 was not examined
        (["eb"], ["f1", "f2"]),  # nothing of its partition was
    ],
)
def test_dropped_delete_of_a_file_not_examined_is_stale(drop: list[str], examined: list[str]) -> None:
    pinned = deleted()
    intended, new = converted(pinned, pinned, mark("f1", P1, 5), drop=drop, examined=examined)
    assert broken(pinned, pinned, intended, new) == {Rule.NEEDED_DELETE}
    assert Rule.NEEDED_DELETE in STALE_RULES


@pytest.mark.parametrize("seq", [1, 3])
@pytest.mark.parametrize("everywhere", [False, True])
def test_dropped_delete_of_a_late_file_with_an_old_sequence_number_is_stale(
    everywhere: bool, seq: int
) -> None:
    """As a foreign compaction adds it that keeps the sequence number it started from."""
    place = ALL if everywhere else P1
    pinned = table_of(P1, P1).commit(File("f3", Q1, 3, rows=(3,)))
    pinned = pinned.commit(File("e", place, 4, EQUALITY, keys=frozenset({2, 3})), operation="delete")
    base = pinned.commit(
        File("late", Q1 if everywhere else P1, seq, rows=(3, 2)), operation="replace", without=["f2", "f3"]
    )
    intended, new = converted(pinned, base, mark("f1", P1, 6), drop=["e"])
    assert broken(pinned, base, intended, new) == {Rule.NEEDED_DELETE}


def test_dropped_delete_of_a_late_file_with_its_own_sequence_number_breaks_no_rule() -> None:
    pinned = deleted()
    base = pinned.commit(File("late", P1, 5, rows=(1,))).commit(
        File("moved", P1, 4, rows=(2,)), operation="replace", without=["f2"]
    )
    intended, new = converted(pinned, base, mark("f1", P1, 7), mark("f3", Q1, 7), drop=["ea", "eb"])
    assert broken(pinned, base, intended, new) == set()
    assert base.rows() == new.rows() == [1, 2]


def test_delete_that_vanishes_unplanned_is_refused() -> None:
    pinned = deleted()
    intended, new = converted(pinned, pinned, mark("f1", P1, 5), mark("f3", Q1, 5), drop=["ea", "eb"])
    unplanned = replace(intended, dropped=frozenset({"ea"}))
    assert broken(pinned, pinned, unplanned, new) == {Rule.DROPPED_DELETE}


def test_equality_delete_since_the_plan_survives() -> None:
    pinned = deleted()
    base = pinned.commit(File("young", P1, 5, EQUALITY, keys=frozenset({2})), operation="delete")
    intended, new = converted(pinned, base, mark("f1", P1, 6), mark("f3", Q1, 6), drop=["ea", "eb"])
    assert broken(pinned, base, intended, new) == set()
    assert base.rows() == new.rows() == []
    lost = replace(new, manifests={m: f for m, f in new.manifests.items() if f[:1] != (base.deletes[-1],)})
    assert lost.rows() == [2]
    assert broken(pinned, base, intended, lost) == {Rule.DROPPED_DELETE}


def test_planned_drop_left_out_is_refused() -> None:
    pinned = deleted()
    intended, new = converted(pinned, pinned, mark("f1", P1, 5), drop=["ea"], examined=["f1", "f2"])
    more = standing_on(pinned, replace(intended, dropped=frozenset({"ea", "eb"})))
    assert broken(pinned, pinned, more, new) == {Rule.REMOVED_FILES}


def rewrite_under_delete() -> tuple[Lake, Intent]:
    """Files f1 and f2 of partition a are rewritten without row 1, f3 of b is not."""
    pinned = deleted()
    sources = [f for f in pinned.data if f.place == P1]
    return pinned, intent_on(pinned, sources, [File("new", P1, pinned.seq, rows=(2,))], dropped=["ea"])


def rewrite_on(base: Lake, pinned: Lake, *drop: str) -> Lake:
    output = File("new", P1, pinned.seq, rows=(2,))
    return base.commit(output, operation="replace", without=["f1", "f2", *drop])


def test_rewrite_that_drops_what_it_has_applied_breaks_no_rule() -> None:
    pinned, intended = rewrite_under_delete()
    new = rewrite_on(pinned, pinned, "ea")
    assert broken(pinned, pinned, intended, new) == set()
    assert pinned.rows() == new.rows() == [2]


def test_rewrite_that_drops_a_delete_it_was_not_to_drop_is_refused() -> None:
    pinned, intended = rewrite_under_delete()
    new = rewrite_on(pinned, pinned, "ea", "eb")
    assert broken(pinned, pinned, intended, new) == {Rule.DROPPED_DELETE}
    assert new.rows() == [2, 3]


def test_rewrite_that_drops_a_delete_of_a_file_it_leaves_is_stale() -> None:
    pinned, intended = rewrite_under_delete()
    both = standing_on(pinned, replace(intended, dropped=frozenset({"ea", "eb"})))
    assert broken(pinned, pinned, both, rewrite_on(pinned, pinned, "ea", "eb")) == {Rule.NEEDED_DELETE}


def test_rewrite_that_drops_a_delete_of_a_late_file_is_stale() -> None:
    pinned, intended = rewrite_under_delete()
    base = pinned.commit(File("late", P1, 2, rows=(1,)), operation="overwrite")
    assert broken(pinned, base, intended, rewrite_on(base, pinned, "ea")) == {Rule.NEEDED_DELETE}


def test_manifests_the_plan_knew_are_opened_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = table_of(*[P1] * 6)
    pinned = replace(pinned, manifests={"m1-1": (File("g1", P1, 1), File("g2", P1, 1)), **pinned.manifests})
    pinned = pinned.commit(File("e", P1, 7, EQUALITY), operation="delete")
    base = pinned.commit(File("late", P1, 8))
    intended, new = converted(pinned, base, mark("f1", P1, 9), drop=["e"])
    for limit, known in ((100, 7), (7, 6), (3, 3), (0, 0)):
        monkeypatch.setattr(manifest_diff, "SPOT_CHECK_FILES", limit)
        opened: list[str] = []
        assert check(intended, change_of(pinned, base, new, opened, intended)) == ()
        assert len([m for m in opened if m in pinned.manifests and m != "m7-0"]) == known
        assert ("m1-1" in opened) is (limit == 100)


def test_manifests_since_the_plan_are_opened_whatever_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_diff, "SPOT_CHECK_FILES", 0)
    pinned = table_of(P1).commit(File("e", P1, 2, EQUALITY), operation="delete")
    base = pinned.commit(*(File(f"late{n}", P1, 1) for n in range(5)), operation="overwrite")
    intended, new = converted(pinned, base, mark("f1", P1, 4), drop=["e"])
    assert broken(pinned, base, intended, new) == {Rule.NEEDED_DELETE}
    # An unplanned drop is looked for in every manifest.
    assert broken(pinned, pinned, *_unplanned(pinned)) == {Rule.DROPPED_DELETE}


def _unplanned(pinned: Lake) -> tuple[Intent, Lake]:
    intended, new = converted(pinned, pinned, mark("f1", P1, 3), drop=["e"])
    return replace(intended, dropped=frozenset()), new
