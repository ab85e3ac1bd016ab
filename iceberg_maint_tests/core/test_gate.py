"""The gate's rules on values: each rule alone, then against a model of what readers see."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from iceberg_maint.core.change import Change, Entry, FileChange, Lineage, Since, scope_of
from iceberg_maint.core.difference import read_file_change
from iceberg_maint.core.gate import STALE_RULES, Rule, applies, check
from iceberg_maint.core.intent import Intent, intent_of
from iceberg_maint.core.plan import Batch, FileGroup, InputFile
from iceberg_maint.core.state import FileKind, Manifest, ManifestEntry
from iceberg_maint.ports import WrittenFile
from iceberg_maint_tests.core.lake import UNPARTITIONED, File, Lake, Place, change_of, intent_on

ALL: Place = (0, ())
P1: Place = (1, ("a",))
Q1: Place = (1, ("b",))
P2: Place = (2, ("a",))


def table_of(*places: Place) -> Lake:
    """One file per place, each of one row: its number."""
    lake = Lake()
    for number, place in enumerate(places, 1):
        lake = lake.commit(File(f"f{number}", place, number, rows=(number,)))
    return lake


def rewritten(pinned: Lake, base: Lake, seq: int | None = None, place: Place | None = None) -> Lake:
    """Files f1 and f2 of `pinned` made one, on `base`."""
    sources = [f for f in pinned.data if f.path in {"f1", "f2"}]
    rows = tuple(r for f in sources for r in f.rows)
    output = File("new", place or sources[0].place, pinned.seq if seq is None else seq, rows=rows)
    return base.commit(output, operation="replace", without=[f.path for f in sources])


def intent(pinned: Lake, place: Place | None = None) -> Intent:
    sources = [f for f in pinned.data if f.path in {"f1", "f2"}]
    return intent_on(pinned, sources, [File("new", place or sources[0].place, pinned.seq)])


def rules(intended: Intent, change: Change) -> set[Rule]:
    return {v.rule for v in check(intended, change)}


def good() -> tuple[Intent, Change]:
    pinned = table_of(P1, P1, Q1)
    return intent(pinned), change_of(pinned, pinned, rewritten(pinned, pinned))


def test_commit_as_planned_breaks_no_rule() -> None:
    assert rules(*good()) == set()


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"table_uuid": "other"}, Rule.TABLE_UUID),
        ({"format_version": 3}, Rule.FORMAT_VERSION),
        ({"schema_id": 1}, Rule.SCHEMA),
        ({"spec_ids": frozenset({0, 2})}, Rule.SPEC),
    ],
)
def test_table_unlike_the_planned_one_is_stale(changed: dict[str, object], rule: Rule) -> None:
    intended, change = good()
    change = replace(
        change,
        base=replace(change.base, **changed),  # type: ignore[arg-type]
        new=replace(change.new, **changed),  # type: ignore[arg-type]
    )
    assert rules(intended, change) == {rule}
    assert rule in STALE_RULES


def test_spec_added_since_the_plan_breaks_no_rule() -> None:
    intended, change = good()
    specs = change.base.spec_ids | {3}
    change = replace(
        change, base=replace(change.base, spec_ids=specs), new=replace(change.new, spec_ids=specs)
    )
    assert rules(intended, change) == set()


@pytest.mark.parametrize(
    "lineage", [Lineage(pinned_exists=False, reaches_pinned=False), Lineage(True, False)]
)
def test_pinned_snapshot_gone_or_no_ancestor_is_stale(lineage: Lineage) -> None:
    intended, change = good()
    assert rules(intended, replace(change, lineage=lineage)) == {Rule.PINNED_SNAPSHOT}


@pytest.mark.parametrize("changed", [{"parent_id": 77}, {"schema_id": 4}, {"table_uuid": "x"}])
def test_commit_of_more_than_files_is_refused(changed: dict[str, object]) -> None:
    intended, change = good()
    assert rules(intended, replace(change, new=replace(change.new, **changed))) == {  # type: ignore[arg-type]
        Rule.METADATA
    }


def test_removal_that_was_not_planned_is_refused() -> None:
    pinned = table_of(P1, P1, Q1)
    new = rewritten(pinned, pinned)
    new = replace(new, manifests={k: v for k, v in new.manifests.items() if v and v[0].path != "f3"})
    assert rules(intent(pinned), change_of(pinned, pinned, new)) == {Rule.REMOVED_FILES, Rule.LIVE_COUNT}


def test_planned_removal_left_out_is_refused() -> None:
    pinned = table_of(P1, P1, Q1)
    output = File("new", P1, pinned.seq, rows=(1, 2))
    new = pinned.commit(output, operation="replace", without=["f1"])
    assert rules(intent(pinned), change_of(pinned, pinned, new)) == {Rule.REMOVED_FILES, Rule.LIVE_COUNT}


def test_foreign_or_missing_addition_is_refused() -> None:
    pinned = table_of(P1, P1)
    intended = intent(pinned)
    other = pinned.commit(File("alien", P1, pinned.seq), operation="replace", without=["f1", "f2"])
    assert rules(intended, change_of(pinned, pinned, other)) == {Rule.ADDED_FILES}
    nothing = pinned.commit(operation="replace", without=["f1", "f2"])
    assert rules(intended, change_of(pinned, pinned, nothing)) == {Rule.ADDED_FILES, Rule.LIVE_COUNT}


def test_added_delete_file_is_refused() -> None:
    pinned = table_of(P1, P1)
    new = rewritten(pinned, pinned)
    extra = File("d", P1, pinned.seq, FileKind.POSITION_DELETES, positions=frozenset({("new", 0)}))
    new = replace(new, manifests={**new.manifests, f"m{new.seq}-9": (extra,)})
    assert rules(intent(pinned), change_of(pinned, pinned, new)) == {Rule.ADDED_FILES}


@pytest.mark.parametrize("place", [Q1, P2, ALL])
def test_output_elsewhere_than_planned_is_refused(place: Place) -> None:
    pinned = table_of(P1, P1)
    change = change_of(pinned, pinned, rewritten(pinned, pinned, place=place))
    assert rules(intent(pinned), change) == {Rule.ADDED_FILES}


def test_group_of_two_partitions_is_refused() -> None:
    pinned = table_of(P1, Q1)
    found = rules(intent(pinned), change_of(pinned, pinned, rewritten(pinned, pinned)))
    assert found == {Rule.REMOVED_FILES, Rule.ADDED_FILES}


@pytest.mark.parametrize("offset", [-1, 1, 100])
def test_sequence_number_other_than_the_pinned_is_refused(offset: int) -> None:
    pinned = table_of(P1, P1, Q1)
    new = rewritten(pinned, pinned, seq=pinned.seq + offset)
    assert rules(intent(pinned), change_of(pinned, pinned, new)) == {Rule.SEQUENCE_NUMBER}


def test_sequence_numbers_of_format_v1_pass_as_zero() -> None:
    lake = Lake(
        {"m0-a": (File("f1", P1, 0, rows=(1,)),), "m0-b": (File("f2", P1, 0, rows=(2,)),)},
    )
    intended = replace(intent(lake), format_version=1)
    change = change_of(lake, lake, rewritten(lake, lake))
    change = replace(
        change,
        base=replace(change.base, format_version=1),
        new=replace(change.new, format_version=1),
    )
    assert rules(intended, change) == set()


def difference(base: Lake, new: Lake, **listed: object) -> FileChange:
    """The difference where the new list says `listed` of the manifest that holds the output."""

    def lie(manifest: Manifest) -> Manifest:
        return replace(manifest, **listed) if manifest.path == f"m{new.seq}-0" else manifest  # type: ignore[arg-type]

    def read(path: str, *_: int) -> list[ManifestEntry]:
        return (new if path in new.manifests else base).entries(path)

    return read_file_change(
        base.listed(), [lie(m) for m in new.listed()], new.seq, base.seq, UNPARTITIONED, read
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
    found = difference(pinned, rewritten(pinned, pinned), added_files=2)
    assert found.altered == ("manifest m3-0 holds 1 ADDED entries, its list says 2",)
    intended, change = good()
    assert rules(intended, replace(change, files=replace(change.files, altered=found.altered))) == {
        Rule.KEPT_FILES
    }


def test_file_that_is_live_twice_is_refused() -> None:
    pinned = table_of(P1, P1)
    twice = replace(pinned, manifests={**pinned.manifests, "m1-9": (pinned.data[0],)})
    assert Rule.KEPT_FILES in rules(intent(pinned), change_of(pinned, twice, rewritten(pinned, twice)))


def test_newer_equality_delete_dropped_as_too_old_is_refused() -> None:
    """apache/iceberg#10312."""
    pinned = table_of(P1, P1)
    delete = File("d", P1, 3, FileKind.EQUALITY_DELETES, keys=frozenset({2}))
    base = pinned.commit(delete, operation="delete").commit(File("f3", P1, 4, rows=(3,)))
    kept = rewritten(pinned, base)
    dropped = replace(kept, manifests={k: v for k, v in kept.manifests.items() if v != (delete,)})
    assert rules(intent(pinned), change_of(pinned, base, kept)) == set()
    assert rules(intent(pinned), change_of(pinned, base, dropped)) == {Rule.DROPPED_DELETE}
    assert (base.rows(), dropped.rows()) == ([1, 3], [1, 2, 3])


@pytest.mark.parametrize(
    ("operation", "rule"),
    [("replace", {Rule.FOREIGN_REPLACE}), ("append", {Rule.FOREIGN_REPLACE}), ("delete", set())],
)
def test_delete_added_by_an_operation_iceberg_does_not_validate_is_refused(
    operation: str, rule: set[Rule]
) -> None:
    pinned = table_of(P1, P1, Q1)
    delete = File("d", Q1, 4, FileKind.POSITION_DELETES, positions=frozenset({("f3", 0)}), referenced="f3")
    base = pinned.commit(delete, operation=operation)
    assert rules(intent(pinned), change_of(pinned, base, rewritten(pinned, base))) == rule


@pytest.mark.parametrize(
    ("since", "rule"),
    [
        (Since(9, "replace", adds_deletes=False, removes_deletes=True, ours=True), set()),
        (Since(9, "replace", adds_deletes=True, removes_deletes=True, ours=True), {Rule.FOREIGN_REPLACE}),
        (
            Since(9, "replace", adds_deletes=False, removes_deletes=True, ours=False),
            {Rule.FOREIGN_REPLACE},
        ),
        (Since(9, "replace", adds_deletes=False, removes_deletes=False, ours=False), set()),
    ],
)
def test_replace_between_passes_only_if_it_is_ours_and_adds_no_delete(since: Since, rule: set[Rule]) -> None:
    intended, change = good()
    lineage = Lineage(pinned_exists=True, reaches_pinned=True, since=(since,))
    assert rules(intended, replace(change, lineage=lineage)) == rule


@pytest.mark.parametrize(
    ("kind", "referenced", "place", "stale"),
    [
        (FileKind.POSITION_DELETES, "f1", P1, True),
        (FileKind.POSITION_DELETES, None, P1, True),
        (FileKind.DELETION_VECTOR, "f1", P1, True),
        (FileKind.POSITION_DELETES, "f3", P1, False),
        (FileKind.POSITION_DELETES, None, Q1, False),
        (FileKind.DELETION_VECTOR, "f3", Q1, False),
        (FileKind.EQUALITY_DELETES, None, P1, False),
    ],
)
def test_newer_position_delete_of_a_source_is_stale(
    kind: FileKind, referenced: str | None, place: Place, stale: bool
) -> None:
    pinned = table_of(P1, P1, P1)
    base = pinned.commit(File("d", place, 4, kind, referenced=referenced), operation="delete")
    found = rules(intent(pinned), change_of(pinned, base, rewritten(pinned, base)))
    assert found == ({Rule.NEW_DELETE} if stale else set())


@pytest.mark.parametrize(
    ("source", "target", "delete", "refused"),
    [
        (ALL, P1, P1, True),
        (P1, P2, P1, True),
        (P1, P2, P2, True),
        (P1, P2, Q1, False),
        (ALL, P1, ALL, False),
        (P1, P2, ALL, False),
        (P1, P1, P1, False),
    ],
)
def test_move_across_specs_under_a_newer_equality_delete(
    source: Place, target: Place, delete: Place, refused: bool
) -> None:
    pinned = table_of(source, source)
    base = pinned.commit(File("d", delete, 3, FileKind.EQUALITY_DELETES), operation="delete")
    change = change_of(pinned, base, rewritten(pinned, base, place=target))
    assert rules(intent(pinned, target), change) == ({Rule.SCOPE} if refused else set())


def test_move_across_specs_under_an_older_equality_delete_passes() -> None:
    pinned = table_of(ALL, ALL).commit(File("d", P1, 3, FileKind.EQUALITY_DELETES), operation="delete")
    change = change_of(pinned, pinned, rewritten(pinned, pinned, place=P1))
    assert rules(intent(pinned, P1), change) == set()


@pytest.mark.parametrize(
    ("kind", "delete_seq", "data_seq", "expected"),
    [
        (FileKind.EQUALITY_DELETES, 5, 4, True),
        (FileKind.EQUALITY_DELETES, 5, 5, False),
        (FileKind.EQUALITY_DELETES, 5, 6, False),
        (FileKind.POSITION_DELETES, 5, 5, True),
        (FileKind.POSITION_DELETES, 5, 6, False),
    ],
)
def test_delete_applies_by_sequence_number(
    kind: FileKind, delete_seq: int, data_seq: int, expected: bool
) -> None:
    delete, data = Entry("d", kind, P1, delete_seq, 1), Entry("f", FileKind.DATA, P1, data_seq, 1)
    assert applies(delete, data, UNPARTITIONED) is expected


def test_delete_of_another_partition_or_spec_does_not_apply() -> None:
    data = Entry("f", FileKind.DATA, P1, 1, 1)
    for place in (Q1, P2):
        assert not applies(Entry("d", FileKind.EQUALITY_DELETES, place, 9, 1), data, UNPARTITIONED)
    assert applies(Entry("d", FileKind.EQUALITY_DELETES, ALL, 9, 1), data, UNPARTITIONED)
    assert not applies(Entry("d", FileKind.POSITION_DELETES, ALL, 9, 1), data, UNPARTITIONED)


def test_scope_compares_floats_by_bits() -> None:
    assert scope_of(1, (math.nan,), UNPARTITIONED) == scope_of(1, (float("nan"),), UNPARTITIONED)
    assert scope_of(1, (0.0,), UNPARTITIONED) != scope_of(1, (-0.0,), UNPARTITIONED)


def test_scope_of_void_fields_only_is_that_of_no_partition() -> None:
    assert scope_of(0, (None, None), UNPARTITIONED) == (0, ())
    assert scope_of(1, (None,), UNPARTITIONED) == (1, (None,))


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
    found = read_file_change(
        before,
        new.listed(),
        new.seq,
        pinned.seq,
        UNPARTITIONED,
        lambda path, *_: (new if path in new.manifests else pinned).entries(path),
    )
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
    base = pinned.commit(File("other", Q1, 4)).commit(File("elsewhere", (2, ("z",)), 1))
    new = rewritten(pinned, base)
    new = replace(new, manifests={k: v for k, v in new.manifests.items() if v != (delete,)})
    opened: list[str] = []
    change_of(pinned, base, new, opened)
    assert "m4-0" not in opened  # too young for the delete
    assert "m5-0" not in opened  # another spec


@pytest.mark.parametrize(
    ("kind", "place", "seq", "referenced"),
    [
        (FileKind.POSITION_DELETES, Q1, 3, None),  # as old as the data: still applies
        (FileKind.DELETION_VECTOR, P2, 4, "f3"),  # by path, whatever the spec it was written with
        (FileKind.POSITION_DELETES, P2, 4, "f3"),
    ],
)
def test_vanished_delete_of_a_live_file_is_refused(
    kind: FileKind, place: Place, seq: int, referenced: str | None
) -> None:
    delete = File("d", place, seq, kind, referenced=referenced)
    pinned = table_of(P1, P1, Q1).commit(delete, operation="delete")
    new = rewritten(pinned, pinned)
    assert rules(intent(pinned), change_of(pinned, pinned, new)) == set()
    dropped = replace(new, manifests={k: v for k, v in new.manifests.items() if v != (delete,)})
    assert rules(intent(pinned), change_of(pinned, pinned, dropped)) == {Rule.DROPPED_DELETE}


def test_vanished_delete_of_a_removed_file_passes() -> None:
    delete = File("d", P1, 3, FileKind.DELETION_VECTOR, referenced="f1")
    pinned = table_of(P1, P1).commit(delete, operation="delete")
    new = rewritten(pinned, pinned)
    dropped = replace(new, manifests={k: v for k, v in new.manifests.items() if v != (delete,)})
    assert rules(intent(pinned), change_of(pinned, pinned, dropped)) == set()


def test_manifest_kept_under_other_facts_is_refused() -> None:
    pinned = table_of(P1, P1, Q1)
    change = change_of(pinned, pinned, rewritten(pinned, pinned))
    listed = [replace(m, min_sequence_number=9) if m.path == "m3-0" else m for m in change.new.manifests]
    found = read_file_change(
        change.base.manifests,
        listed,
        4,
        pinned.seq,
        UNPARTITIONED,
        lambda path, *_: rewritten(pinned, pinned).entries(path),
    )
    assert found.altered == ("manifest m3-0 is listed with other facts than before",)


def test_intent_of_batch_names_files_by_group() -> None:
    def group(*paths: str) -> FileGroup:
        return FileGroup("p", 1, 2, tuple(InputFile(p, 1, 1, 1) for p in paths), 1)

    batch = Batch("b", "t", "u", "op", "binpack", 2, 11, 5, 3, (group("a", "b"), group("c")), 100)
    found = intent_of(batch, [WrittenFile(p, 1, 1, 2, g, "") for p, g in (("x", 0), ("y", 1), ("z", 0))])
    assert [(g.removed, g.added) for g in found.groups] == [({"a", "b"}, {"x", "z"}), ({"c"}, {"y"})]
    assert (found.snapshot_id, found.snapshot_sequence_number, found.schema_id) == (11, 5, 3)
    assert (found.removed, found.added) == ({"a", "b", "c"}, {"x", "y", "z"})


# against the model: what the gate lets pass changes no row

places = st.sampled_from([ALL, P1, Q1, P2])


@st.composite
def histories(draw: st.DrawFn, *, honest: bool) -> tuple[Lake, Lake, Lake, Intent]:
    """A table at the pinned snapshot, at the base, after our commit; and our intent.

    An honest commit keeps the pinned sequence number and its sources' place and drops only deletes that
    apply to nothing; others do not touch its sources by position. A dishonest one does anything.
    """
    lake = Lake()
    home = draw(places)
    for number in range(draw(st.integers(1, 4))):
        place = home if number < 2 else draw(places)
        rows = (10 * number, 10 * number + 1)
        lake = lake.commit(File(f"f{number}", place, lake.seq + 1, rows=rows))
        if draw(st.booleans()):
            lake = _delete(draw, lake, [f.path for f in lake.data])
    pinned = lake
    candidates = [f for f in pinned.data if f.place == home]
    sources = candidates[: draw(st.integers(1, len(candidates)))]
    named = {f.path for f in sources}
    kept = [r for r in pinned.rows() if any(r in f.rows for f in sources)]
    for number in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):
            lake = lake.commit(File(f"g{number}", draw(places), lake.seq + 1, rows=(100 + number,)))
        else:
            touchable = [f.path for f in lake.data if not (honest and f.path in named)]
            lake = _delete(draw, lake, touchable, replaces=not honest, shared=not honest)
    seq = pinned.seq if honest else draw(st.sampled_from([pinned.seq] * 4 + [1, lake.seq + 1]))
    place = home if honest else draw(st.sampled_from([home, home, P1, P2]))
    outputs = [File("new", place, seq, rows=tuple(kept))] if kept else []
    after = lake.commit(*outputs, operation="replace", without=named)
    droppable = [d.path for d in after.deletes if not honest or _void(d, after)]
    if droppable:
        gone = draw(st.sets(st.sampled_from(droppable), max_size=2))
        after = replace(lake.commit(*outputs, operation="replace", without=named | gone), since=after.since)
    return pinned, lake, after, intent_on(pinned, sources, outputs)


def _delete(
    draw: st.DrawFn, lake: Lake, paths: list[str], *, replaces: bool = False, shared: bool = True
) -> Lake:
    seq = lake.seq + 1
    operation = draw(st.sampled_from(["delete", "replace"])) if replaces else "delete"
    if not paths or draw(st.booleans()):
        keys = draw(st.frozensets(st.sampled_from([0, 1, 10, 11, 20, 100, 101]), min_size=1, max_size=3))
        found = File(f"e{seq}", draw(places), seq, FileKind.EQUALITY_DELETES, keys=keys)
        return lake.commit(found, operation=operation)
    path = draw(st.sampled_from(paths))
    place = next(f.place for f in lake.data if f.path == path)
    found = File(
        f"p{seq}",
        place,
        seq,
        FileKind.POSITION_DELETES,
        positions=frozenset({(path, draw(st.integers(0, 1)))}),
        referenced=None if shared and draw(st.booleans()) else path,
    )
    return lake.commit(found, operation=operation)


def _void(delete: File, lake: Lake) -> bool:
    entry = Entry(delete.path, delete.kind, delete.place, delete.seq, 1, delete.referenced)
    return not any(applies(entry, Entry(f.path, f.kind, f.place, f.seq, 1), UNPARTITIONED) for f in lake.data)


@settings(max_examples=600, deadline=None)
@given(histories(honest=False))
def test_commit_that_the_gate_lets_pass_changes_no_row(history: tuple[Lake, Lake, Lake, Intent]) -> None:
    pinned, base, new, intended = history
    broken = rules(intended, change_of(pinned, base, new))
    event("refused" if broken else "passed")
    if base.rows() != new.rows():
        event("rows would change")
        assert broken


@settings(max_examples=300, deadline=None)
@given(histories(honest=True))
def test_honest_commit_passes_the_gate(history: tuple[Lake, Lake, Lake, Intent]) -> None:
    pinned, base, new, intended = history
    assert check(intended, change_of(pinned, base, new)) == ()
    assert base.rows() == new.rows()
