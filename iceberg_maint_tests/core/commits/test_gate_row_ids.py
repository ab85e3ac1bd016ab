"""The gate's rules of row ids on values: no commit gives a row another id."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from iceberg_maint.core.commits.change import Change, Rule, is_stale
from iceberg_maint.core.commits.gate_rules import check
from iceberg_maint.core.commits.intent import Intent, intent_of
from iceberg_maint.core.model.table_state import NO_ROW_IDS
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import (
    ConvertEqualityDeletes,
    FileGroup,
    InputFile,
    RewriteDataFiles,
    Work,
)
from iceberg_maint_tests.support.core.memory_table import (
    P1,
    File,
    Lake,
    change_of,
    intent,
    rewritten,
    table_of,
)


def rewriting(pinned: Lake, base: Lake) -> tuple[Intent, Change]:
    """A rewrite of f1 and f2 in format v3."""
    intended = replace(intent(pinned), format_version=3)
    return intended, change_of(pinned, base, rewritten(pinned, base), intent=intended)


def of_rows(change: Change, pinned: int | None, first: int | None, after: int | None, end: int) -> Change:
    """The change with these row ids: of the pinned snapshot, the base and the new snapshot. The base's next row id
    is 10, the new one's is `end`."""
    return replace(
        change,
        base=replace(change.base, first_row_id=first, next_row_id=10),
        new=replace(change.new, first_row_id=after, next_row_id=end),
        lineage=replace(change.lineage, pinned_first_row_id=pinned),
    )


@pytest.mark.parametrize(("pinned", "first", "stale"), [(0, 5, False), (None, None, False), (None, 0, True)])
def test_rewrite_planned_before_rows_had_ids_is_stale(
    pinned: int | None, first: int | None, *, stale: bool
) -> None:
    lake = table_of(P1, P1)
    intended, change = rewriting(lake, lake)
    broken = check(intended, of_rows(change, pinned, first, 10, 20))
    assert {v.rule for v in broken} == ({Rule.ROW_IDS} if stale else set())
    assert is_stale(broken) or not stale


@pytest.mark.parametrize(("after", "end"), [(9, 20), (11, 20), (None, 20), (10, 11)])
def test_row_ids_given_twice_or_with_a_gap_are_refused(after: int | None, end: int) -> None:
    lake = table_of(P1, P1)
    intended, change = rewriting(lake, lake)
    assert check(intended, of_rows(change, 0, 5, 10, 20)) == ()
    broken = check(intended, of_rows(change, 0, 5, after, end))
    assert {v.rule for v in broken} == {Rule.METADATA}
    assert not is_stale(broken)


def with_row_ids(lake: Lake, ids: dict[str, int]) -> Lake:
    manifests = {
        path: tuple(replace(f, row_id=ids.get(f.path, f.row_id)) for f in files)
        for path, files in lake.manifests.items()
    }
    return replace(lake, manifests=manifests)


def test_source_registered_again_with_other_row_ids_is_stale() -> None:
    pinned = with_row_ids(table_of(P1, P1), {"f1": 0, "f2": 1})
    same = pinned.commit(File("f1", P1, 1, rows=(1,), row_id=0), operation="overwrite", without=["f1"])
    other = pinned.commit(File("f1", P1, 1, rows=(1,), row_id=7), operation="overwrite", without=["f1"])
    assert check(*rewriting(pinned, same)) == ()
    [broken] = check(*rewriting(pinned, other))
    assert (broken.rule, broken.fact) == (
        Rule.IDENTITY,
        "f1 is another file than was planned on: first row id 7, was 0",
    )


def test_kept_file_that_gets_other_row_ids_is_refused_and_one_that_gets_its_first_is_not() -> None:
    def kept_with(before: int | None, after: int) -> set[Rule]:
        pinned = table_of(P1)
        files = tuple(File(f"f{n}", P1, 1, rows=(n,), row_id=before if n == 3 else n) for n in (1, 2, 3))
        pinned = replace(pinned, manifests={"m1-0": files})
        new = rewritten(pinned, pinned)
        # Rows that do not add up make the gate compare entry by entry.
        manifests = {
            path: tuple(replace(f, row_id=after) if f.path == "f3" else f for f in held)
            for path, held in new.manifests.items()
        }
        intended = replace(intent(pinned), format_version=3)
        counted = change_of(pinned, pinned, replace(new, manifests=manifests, marked={}), intent=intended)
        return {v.rule for v in check(intended, counted)}

    assert kept_with(3, 3) == set()
    assert kept_with(None, 40) == set()
    assert kept_with(3, 40) == {Rule.KEPT_FILES}


def test_entries_inherit_row_ids_from_their_manifest() -> None:
    files = (File("f1", P1, 1, rows=(1, 5)), File("f2", P1, 1, rows=(2,)))
    pinned = replace(table_of(P1), manifests={"m1-0": files}, first_row_ids={"m1-0": 30})
    intended = intent(pinned)
    intended = replace(
        intended,
        format_version=3,
        data_files=tuple(
            replace(f, first_row_id={"f1": 30, "f2": 32}[f.identity[0]]) for f in intended.data_files
        ),
    )
    new = rewritten(pinned, pinned)
    change = change_of(pinned, pinned, replace(new, marked={}), intent=intended)
    assert [(e.path, e.first_row_id) for e in change.files.removed] == [("f1", 30), ("f2", 32)]
    assert check(intended, change) == ()


@pytest.mark.parametrize(
    ("make_work", "version", "row_id", "unknown"),
    [
        (RewriteDataFiles, 3, None, {"a"}),
        (RewriteDataFiles, 3, NO_ROW_IDS, set()),
        (RewriteDataFiles, 3, 0, set()),
        (RewriteDataFiles, 2, None, set()),
        (partial(ConvertEqualityDeletes, ()), 3, None, set()),
    ],
)
def test_v3_rewrite_that_is_planned_without_row_ids_is_unknown(
    make_work: Callable[[tuple[FileGroup, ...]], Work],
    version: int,
    row_id: int | None,
    unknown: set[str],
) -> None:
    file = InputFile("a", 10, 1, 1, first_row_id=row_id)
    group = FileGroup("p=a", 1, 1, (file,), 1)
    batch = Batch("b", "lake.db.t", "u", version, 7, 7, 0, 1000, make_work((group,)))
    assert intent_of(batch, ()).unknown == unknown
