"""The gate's rule of identity on values: a path of the plan names the same file at the base."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from iceberg_maint.core.commits.change import STALE_RULES, Entry, Rule, scope_of
from iceberg_maint.core.commits.gate_rules import check
from iceberg_maint.core.commits.intent import Intent
from iceberg_maint.core.commits.planned_files import PlannedFile, partition_key
from iceberg_maint.core.model.partition_key import FIRST_SPEC_ID, encode_partition
from iceberg_maint.core.model.table_state import FileKind
from iceberg_maint_tests.support.core.conversions import EQUALITY, POSITIONS, broken, converted, mark
from iceberg_maint_tests.support.core.memory_table import (
    P1,
    P2,
    Q1,
    SPECS,
    UNPARTITIONED,
    File,
    Lake,
    Place,
    change_of,
    intent,
    rewritten,
    rules,
    table_of,
)


def again(lake: Lake, path: str, **changes: object) -> Lake:
    """The lake after somebody has removed the file and registered its path once more."""
    file = next(f for f in lake.files if f.path == path)
    gone = lake.commit(operation="delete", without=[path])
    changed = replace(file, **{"seq": gone.seq + 1, **changes})  # type: ignore[arg-type]
    return gone.commit(changed)


def rewriting(pinned: Lake, base: Lake) -> set[Rule]:
    """The rules that a rewrite of f1 and f2 breaks on this base."""
    sources = {"f1", "f2"}
    output = File("new", P1, pinned.seq, rows=(1, 2))
    new = base.commit(output, operation="replace", without=sources)
    intended = intent(pinned)
    return rules(intended, change_of(pinned, base, new, intent=intended))


def test_source_with_another_sequence_number_is_stale() -> None:
    pinned = table_of(P1, P1, Q1)
    assert rewriting(pinned, again(pinned, "f1")) == {Rule.IDENTITY}
    assert Rule.IDENTITY in STALE_RULES


def test_source_registered_with_its_own_sequence_number_passes() -> None:
    pinned = table_of(P1, P1, Q1)
    assert rewriting(pinned, again(pinned, "f1", seq=1)) == set()


@pytest.mark.parametrize("changed", [{"rows": (1, 5)}, {"size": 11}])
def test_source_with_other_rows_or_bytes_is_stale(changed: dict[str, object]) -> None:
    pinned = table_of(P1, P1, Q1)
    assert rewriting(pinned, again(pinned, "f1", seq=1, **changed)) == {Rule.IDENTITY}


@pytest.mark.parametrize("place", [Q1, P2])
def test_source_in_another_partition_or_spec_is_stale(place: Place) -> None:
    pinned = table_of(P1, P1)
    base = again(again(pinned, "f1", seq=1, place=place), "f2", seq=2, place=place)
    assert Rule.IDENTITY in rewriting(pinned, base)


def test_source_removed_and_registered_in_one_commit_is_stale() -> None:
    pinned = table_of(P1, P1, Q1)
    base = pinned.commit(File("f1", P1, 4, rows=(1,)), operation="overwrite", without=["f1"])
    assert rewriting(pinned, base) == {Rule.IDENTITY}


def test_violation_names_what_differs() -> None:
    pinned = table_of(P1, P1, Q1)
    base = again(pinned, "f1", size=11)
    intended = intent(pinned)
    [found] = check(intended, change_of(pinned, base, rewritten(pinned, base), intent=intended))
    assert found.fact == (
        "f1 is another file than was planned on: data sequence number 5, was 1, bytes 11, was 10"
    )


@pytest.mark.parametrize("kind", [POSITIONS, EQUALITY])
def test_applied_delete_that_is_gone_is_stale(kind: FileKind) -> None:
    delete = File("d", P1, 3, kind, keys=frozenset({1}), positions=frozenset({("f1", 0), ("f2", 0)}))
    pinned = table_of(P1, P1).commit(delete, operation="delete")
    assert rewriting(pinned, pinned) == set()
    assert rewriting(pinned, pinned.commit(operation="overwrite", without=["d"])) == {Rule.IDENTITY}


def test_applied_delete_in_a_rewritten_manifest_passes() -> None:
    delete = File("d", P1, 3, EQUALITY, keys=frozenset({1}))
    pinned = table_of(P1, P1).commit(delete, operation="delete")
    moved = {(f"{m}~9" if delete in files else m): files for m, files in pinned.manifests.items()}
    base = replace(pinned, manifests=moved, seq=9)
    assert rewriting(pinned, base) == set()


def test_delete_of_another_partition_that_is_gone_passes() -> None:
    delete = File("d", Q1, 4, EQUALITY, keys=frozenset({3}))
    pinned = table_of(P1, P1, Q1).commit(delete, operation="delete")
    assert rewriting(pinned, pinned.commit(operation="overwrite", without=["d"])) == set()


def test_dropped_delete_registered_again_is_stale() -> None:
    delete = File("e", P1, 3, EQUALITY, keys=frozenset({1}))
    pinned = table_of(P1, P1).commit(delete, operation="delete")
    base = again(pinned, "e")
    intended, new = converted(pinned, base, mark("f1", P1, base.seq + 1), drop=["e"])
    assert Rule.IDENTITY in broken(pinned, base, intended, new)


@pytest.mark.parametrize("path", ["f1", "f2"])
def test_examined_file_registered_again_is_stale(path: str) -> None:
    """Whether it is marked or not."""
    delete = File("e", P1, 3, EQUALITY, keys=frozenset({1}))
    pinned = table_of(P1, P1).commit(delete, operation="delete")
    base = again(pinned, path)
    intended, new = converted(pinned, base, mark("f1", P1, base.seq + 1), drop=["e"])
    assert broken(pinned, base, intended, new) == {Rule.IDENTITY}


def test_examined_file_registered_a_second_time_is_stale() -> None:
    delete = File("e", P1, 3, EQUALITY, keys=frozenset({1}))
    pinned = table_of(P1, P1).commit(delete, operation="delete")
    base = pinned.commit(File("f1", P1, 4, rows=(1,)))
    intended, new = converted(pinned, base, mark("f1", P1, base.seq + 1), drop=["e"])
    assert broken(pinned, base, intended, new) == {Rule.IDENTITY}


def test_plan_without_facts_of_its_files_is_stale() -> None:
    pinned = table_of(P1, P1, Q1)
    change = change_of(pinned, pinned, rewritten(pinned, pinned))
    without: Intent = replace(intent(pinned), data_files=())
    assert rules(without, change) == {Rule.IDENTITY}
    assert rules(replace(intent(pinned), unknown=frozenset({"d"})), change) == {Rule.IDENTITY}


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, math.nan, math.inf, None])
def test_partition_key_of_a_scope_is_that_of_the_raw_values(value: float | None) -> None:
    scope = scope_of(3, (value,), UNPARTITIONED)
    assert partition_key(scope, SPECS) == encode_partition(SPECS[3], (value,), FIRST_SPEC_ID)
    entry = Entry("f", FileKind.DATA, scope, 1, 1, size_bytes=10)
    planned = PlannedFile(("f", None), 3, partition_key(scope, SPECS), 1, 1, 10)
    assert planned.difference(PlannedFile.of_entry(entry, partition_key(scope, SPECS))) == ""
