"""The gate's rules on values, each alone: rewrites."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.commits.change import STALE_RULES, Change, Lineage, Rule, Since, Violation, is_stale
from iceberg_maint.core.commits.gate_rules import check
from iceberg_maint.core.commits.intent import Intent, intent_of
from iceberg_maint.core.model.partition_key import PartitionSpec
from iceberg_maint.core.model.table_state import FileKind
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import FileGroup, InputFile, RewriteDataFiles
from iceberg_maint.ports.engine import WrittenFile
from iceberg_maint_tests.support.core.memory_table import (
    ALL,
    P1,
    P2,
    Q1,
    SPECS,
    File,
    Lake,
    Place,
    change_of,
    intent,
    rewritten,
    rules,
    table_of,
)


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
        ({"specs": {0: SPECS[0], 2: SPECS[2]}}, Rule.SPEC),
    ],
)
def test_table_unlike_the_planned_one_is_stale(changed: dict[str, object], rule: Rule) -> None:
    intended, change = good()
    change = replace(
        change,
        base=replace(change.base, **changed),  # type: ignore[arg-type]
        new=replace(change.new, **changed),  # type: ignore[arg-type]
    )
    # Of a spec that is gone nobody can say which partition a file lies in.
    unplaced = {Rule.IDENTITY} if "specs" in changed else set()
    assert rules(intended, change) == {rule} | unplaced
    assert rule in STALE_RULES


def test_spec_added_since_the_plan_breaks_no_rule() -> None:
    intended, change = good()
    specs = {**change.base.specs, 3: PartitionSpec(3, ())}
    change = replace(change, base=replace(change.base, specs=specs), new=replace(change.new, specs=specs))
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
    extra = File("d", P1, new.seq, FileKind.POSITION_DELETES, positions=frozenset({("new", 0)}))
    new = replace(new, manifests={**new.manifests, f"m{new.seq}-9": (extra,)})
    assert rules(intent(pinned), change_of(pinned, pinned, new)) == {Rule.ADDED_FILES}


@pytest.mark.parametrize("place", [Q1, P2, ALL])
def test_output_elsewhere_than_planned_is_refused(place: Place) -> None:
    pinned = table_of(P1, P1)
    change = change_of(pinned, pinned, rewritten(pinned, pinned, place=place))
    assert rules(intent(pinned), change) == {Rule.ADDED_FILES}


def test_output_left_in_the_old_spec_is_refused_where_it_was_to_move() -> None:
    pinned = table_of(P1, P1)
    change = change_of(pinned, pinned, rewritten(pinned, pinned))
    assert rules(intent(pinned, P2), change) == {Rule.ADDED_FILES}


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


@pytest.mark.parametrize(("planned", "stale"), [(1, True), (2, False)])
def test_upgrade_since_the_plan_explains_other_sequence_numbers_only_from_format_v1(
    planned: int, stale: bool
) -> None:
    pinned = table_of(P1, P1, Q1)
    change = change_of(pinned, pinned, rewritten(pinned, pinned, seq=pinned.seq + 1))
    base, new = (replace(table, format_version=planned + 1) for table in (change.base, change.new))
    found = check(replace(intent(pinned), format_version=planned), replace(change, base=base, new=new))
    assert {v.rule for v in found} == {Rule.FORMAT_VERSION, Rule.SEQUENCE_NUMBER}
    assert is_stale(found) is stale


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
    raced = check(intent(pinned), change_of(pinned, base, dropped))
    assert [v.is_stale for v in raced] == [True]
    assert is_stale(raced)
    assert not is_stale((*raced, Violation(Rule.ADDED_FILES, "a file nobody planned", raced=True)))
    assert is_stale((*raced, Violation(Rule.SCHEMA, "another schema")))


def test_stale_rule_excuses_only_the_violations_that_it_explains() -> None:
    stale = Violation(Rule.IDENTITY, "f1 is another file")
    moved = Violation(Rule.REMOVED_FILES, "f1 lies elsewhere", explained_by=frozenset({Rule.IDENTITY}))
    corrupt = Violation(Rule.KEPT_FILES, "f3 is kept with another sequence number", raced=True)
    assert is_stale((stale, moved))
    assert not is_stale((stale, moved, corrupt))
    assert not is_stale((moved,))


def test_source_moved_by_others_is_stale_and_not_when_a_file_outside_the_plan_comes_along() -> None:
    pinned = table_of(P1, P1)
    base = pinned.commit(File("f1", P2, 1, rows=(1,)), operation="overwrite", without=["f1"])
    base = base.commit(File("f2", P2, 2, rows=(2,)), operation="overwrite", without=["f2"])
    intended = intent(pinned)
    new = base.commit(File("new", P1, 2, rows=(1, 2)), operation="replace", without=["f1", "f2"])
    broken = check(intended, change_of(pinned, base, new, intent=intended))
    assert {v.rule for v in broken} == {Rule.IDENTITY, Rule.REMOVED_FILES, Rule.ADDED_FILES}
    assert is_stale(broken)
    foreign = replace(new, manifests={**new.manifests, "m5-9": (File("foreign", P1, 5, rows=(9,)),)})
    broken = check(intended, change_of(pinned, base, foreign, intent=intended))
    assert not is_stale(broken)


def test_delete_dropped_with_nobody_else_committing_is_no_staleness() -> None:
    pinned = table_of(P1, P1)
    delete = File("d", P1, 3, FileKind.EQUALITY_DELETES, keys=frozenset({2}))
    base = pinned.commit(delete, operation="delete").commit(File("f3", P1, 4, rows=(3,)))
    kept = rewritten(pinned, base)
    dropped = replace(kept, manifests={k: v for k, v in kept.manifests.items() if v != (delete,)})
    change = change_of(pinned, base, dropped)
    ours = tuple(replace(since, ours=True) for since in change.lineage.since)
    found = check(intent(pinned), replace(change, lineage=replace(change.lineage, since=ours)))
    assert [(v.rule, v.is_stale) for v in found] == [(Rule.DROPPED_DELETE, False)]


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
        (Since(9, "replace", adds_deletes=True, removes_deletes=True, ours=True), set()),
        (Since(9, "replace", adds_deletes=True, removes_deletes=True, ours=False), {Rule.FOREIGN_REPLACE}),
        (
            Since(9, "replace", adds_deletes=False, removes_deletes=True, ours=False),
            {Rule.FOREIGN_REPLACE},
        ),
        (Since(9, "replace", adds_deletes=False, removes_deletes=False, ours=False), set()),
    ],
)
def test_replace_between_that_changes_deletes_passes_only_if_it_is_ours(
    since: Since, rule: set[Rule]
) -> None:
    intended, change = good()
    lineage = Lineage(pinned_exists=True, reaches_pinned=True, since=(since,))
    assert rules(intended, replace(change, lineage=lineage)) == rule


@pytest.mark.parametrize(("number", "rule"), [(2, set()), (4, {Rule.NEW_DELETE})])
def test_delete_merged_by_ours_since_the_plan_counts_as_new_by_the_number_it_kept(
    number: int, rule: set[Rule]
) -> None:
    pinned = table_of(P1, P1, Q1)
    marks = {"positions": frozenset({("f1", 0)}), "referenced": "f1"}
    base = pinned.commit(File("d", P1, 4, FileKind.POSITION_DELETES, **marks), operation="delete")  # type: ignore[arg-type]
    merged = File("m", P1, number, FileKind.POSITION_DELETES, **marks)  # type: ignore[arg-type]
    base = base.commit(merged, operation="replace", without=["d"])
    base = replace(base, since=(replace(base.since[0], ours=True), *base.since[1:]))
    assert rules(intent(pinned), change_of(pinned, base, rewritten(pinned, base))) == rule


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


def test_vanished_delete_names_one_file_and_counts_the_others() -> None:
    delete = File("d", Q1, 5, FileKind.EQUALITY_DELETES)
    pinned = table_of(P1, P1, Q1, Q1).commit(delete, operation="delete")
    kept = rewritten(pinned, pinned)
    dropped = replace(kept, manifests={k: v for k, v in kept.manifests.items() if v != (delete,)})
    [found] = check(intent(pinned), change_of(pinned, pinned, dropped))
    assert found.fact.endswith("still applies to f3 (3) and 1 more data files")


def test_vanished_delete_of_a_removed_file_passes() -> None:
    delete = File("d", P1, 3, FileKind.DELETION_VECTOR, referenced="f1")
    pinned = table_of(P1, P1).commit(delete, operation="delete")
    new = rewritten(pinned, pinned)
    dropped = replace(new, manifests={k: v for k, v in new.manifests.items() if v != (delete,)})
    assert rules(intent(pinned), change_of(pinned, pinned, dropped)) == set()


def test_intent_of_batch_names_files_by_group() -> None:
    def group(*paths: str) -> FileGroup:
        return FileGroup("p", 1, 2, tuple(InputFile(p, 1, 1, 1) for p in paths), 1)

    batch = Batch("b", "t", "u", 2, 11, 5, 3, 100, RewriteDataFiles((group("a", "b"), group("c"))))
    found = intent_of(batch, [WrittenFile(p, 1, 1, 2, g, "") for p, g in (("x", 0), ("y", 1), ("z", 0))])
    assert [(g.removed, g.added) for g in found.groups] == [({"a", "b"}, {"x", "z"}), ({"c"}, {"y"})]
    assert (found.snapshot_id, found.snapshot_sequence_number, found.schema_id) == (11, 5, 3)
    assert (found.removed, found.added) == ({"a", "b", "c"}, {"x", "y", "z"})
