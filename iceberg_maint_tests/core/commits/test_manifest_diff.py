"""What is read of a commit, and what is not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from iceberg_maint.core.commits.change import FileChange, Rule
from iceberg_maint.core.commits.manifest_diff import read_file_change
from iceberg_maint.core.model.table_state import FileKind, Manifest
from iceberg_maint_tests.support.core.memory_table import (
    P1,
    Q1,
    File,
    Lake,
    change_of,
    intent,
    rewritten,
    rules,
    table_of,
)


def listed_as(base: Lake, before: Iterable[Manifest], new: Lake, after: Iterable[Manifest]) -> FileChange:
    """The difference where the lists before and after say this of their manifests."""
    old, now = (
        replace(base.version(), manifests=tuple(before)),
        replace(new.version(), manifests=tuple(after)),
    )
    return read_file_change(
        intent(base), old, now, None, lambda p, *_: (new if p in new.manifests else base).entries(p)
    )


def tampered(lake: Lake, of: str, **changes: object) -> Lake:
    """The lake with other facts about one file, in its manifests."""
    manifests = {
        m: tuple(replace(f, **changes) if f.path == of else f for f in files)  # type: ignore[arg-type]
        for m, files in lake.manifests.items()
    }
    return replace(lake, manifests=manifests)


def test_kept_delete_with_another_sequence_number_is_refused() -> None:
    pinned = table_of(P1, P1, P1)
    both = tuple(File(f"d{n}", P1, 3, FileKind.POSITION_DELETES, referenced=f"f{n}") for n in (1, 3))
    pinned = replace(pinned, manifests={**pinned.manifests, "m3-1": both})
    output = File("new", P1, pinned.seq, rows=(1, 2))
    new = pinned.commit(output, operation="replace", without=["f1", "f2", "d1"])
    assert rules(intent(pinned), change_of(pinned, pinned, new)) == set()
    older = tampered(new, "d3", seq=2)
    assert rules(intent(pinned), change_of(pinned, pinned, older)) == {Rule.KEPT_FILES}


def test_kept_data_file_lost_without_a_mark_is_refused() -> None:
    pinned = replace(
        table_of(P1, P1), manifests={"m2-0": tuple(File(f"f{n}", P1, 2, rows=(n,)) for n in (1, 2, 3))}
    )
    new = rewritten(pinned, pinned)
    assert rules(intent(pinned), change_of(pinned, pinned, new)) == set()
    lost = replace(new, manifests={**new.manifests, f"m2-0~{new.seq}": ()})
    assert rules(intent(pinned), change_of(pinned, pinned, lost)) == {Rule.REMOVED_FILES, Rule.LIVE_COUNT}
    swapped = tampered(new, "f3", path="alien", rows=(7, 8))
    assert rules(intent(pinned), change_of(pinned, pinned, swapped)) == {
        Rule.REMOVED_FILES,
        Rule.ADDED_FILES,
    }


def test_manifest_that_does_not_hold_what_its_list_says_is_refused() -> None:
    pinned = table_of(P1, P1)
    new = rewritten(pinned, pinned)
    after = [replace(m, added_files=2) if m.path == "m3-0" else m for m in new.listed()]
    found = listed_as(pinned, pinned.listed(), new, after)
    assert found.altered == ("manifest m3-0 holds 1 ADDED entries, its list says 2",)
    change = change_of(pinned, pinned, new)
    altered = replace(change, files=replace(change.files, altered=found.altered))
    assert rules(intent(pinned), altered) == {Rule.KEPT_FILES}


def test_file_that_is_live_twice_is_refused() -> None:
    pinned = table_of(P1, P1)
    twice = replace(pinned, manifests={**pinned.manifests, "m1-9": (pinned.data[0],)})
    assert Rule.KEPT_FILES in rules(intent(pinned), change_of(pinned, twice, rewritten(pinned, twice)))


def test_change_opens_only_manifests_that_differ() -> None:
    pinned = table_of(P1, P1, *[Q1] * 50)
    opened: list[str] = []
    new = rewritten(pinned, pinned)
    change_of(pinned, pinned, new, opened)
    assert sorted(opened) == ["m1-0~53", "m2-0~53", "m53-0"]


def test_change_opens_replaced_manifests_that_are_not_accounted_for() -> None:
    pinned = table_of(P1, P1, Q1)
    unmarked = replace(rewritten(pinned, pinned), marked={})
    opened: list[str] = []
    change = change_of(pinned, pinned, unmarked, opened)
    assert sorted(opened) == ["m1-0", "m1-0~4", "m2-0", "m2-0~4", "m4-0"]
    assert {e.path for e in change.files.removed} == {"f1", "f2"}
    assert rules(intent(pinned), change) == set()


def test_change_compares_both_sides_where_counts_are_left_out() -> None:
    """As a v1 writer lists its manifests."""
    pinned = table_of(P1, P1)
    new = rewritten(pinned, pinned)
    before = [replace(m, existing_files=None, added_rows=None) for m in pinned.listed()]
    found = listed_as(pinned, before, new, new.listed())
    assert ({e.path for e in found.removed}, {e.path for e in found.added}) == ({"f1", "f2"}, {"new"})
    assert (found.live_before, found.altered) == (None, ())


def test_change_opens_delete_manifests_since_the_pinned_snapshot_only() -> None:
    def delete(name: str, seq: int) -> File:
        return File(name, Q1, seq, FileKind.POSITION_DELETES, referenced="f3")

    pinned = table_of(P1, P1, Q1).commit(delete("old", 4), operation="delete")
    base = pinned.commit(delete("young", 5), operation="delete")
    opened: list[str] = []
    change_of(pinned, base, rewritten(pinned, base), opened)
    assert "m5-0" in opened
    assert "m4-0" not in opened


def test_change_opens_data_manifests_a_vanished_delete_may_apply_to() -> None:
    delete = File("d", P1, 3, FileKind.EQUALITY_DELETES)
    pinned = table_of(P1, P1).commit(delete, operation="delete")
    pinned = pinned.commit(File("other", Q1, 4)).commit(File("elsewhere", (2, ("z",)), 1))
    base = pinned.commit(File("late", Q1, 6))
    new = rewritten(pinned, base)
    new = replace(new, manifests={k: v for k, v in new.manifests.items() if v != (delete,)})
    opened: list[str] = []
    change_of(pinned, base, new, opened)
    assert "m4-0" not in opened  # too young for the delete
    assert "m5-0" not in opened  # another spec
    assert "m6-0" in opened  # nobody has compared its lowest sequence number with its entries


def test_manifest_whose_lowest_number_is_too_high_hides_no_file_from_a_vanished_delete() -> None:
    """Another writer's manifest list says 9, its manifest holds a file with number 1."""
    delete = File("d", Q1, 4, FileKind.EQUALITY_DELETES, keys=frozenset({7}))
    pinned = table_of(P1, P1).commit(File("f3", Q1, 3, rows=(3,))).commit(delete, operation="delete")
    base = pinned.commit(File("moved", Q1, 1, rows=(7,)), operation="replace", without=["f3"])
    new = rewritten(pinned, base)
    new = replace(new, manifests={k: v for k, v in new.manifests.items() if v != (delete,)})

    def lied(lake: Lake) -> list[Manifest]:
        return [replace(m, min_sequence_number=9) if m.path == "m5-0" else m for m in lake.listed()]

    found = listed_as(pinned, lied(base), new, lied(new))
    assert [e.path for e in found.removed if e.kind is FileKind.EQUALITY_DELETES] == ["d"]
    assert "moved" in {e.path for e in found.survivors}


def test_manifest_kept_under_other_facts_is_refused() -> None:
    pinned = table_of(P1, P1, Q1)
    new = rewritten(pinned, pinned)
    after = [replace(m, min_sequence_number=9) if m.path == "m3-0" else m for m in new.listed()]
    found = listed_as(pinned, pinned.listed(), new, after)
    assert found.altered == ("manifest m3-0 is listed with other facts than before",)
