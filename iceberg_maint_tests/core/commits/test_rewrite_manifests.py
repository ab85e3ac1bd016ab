"""Where runs of partitions begin, and what the gate lets a rewrite of manifests change: nothing but manifests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_maint.core.commits.change import LiveEntry, Rule, TableVersion, is_stale
from iceberg_maint.core.commits.manifest_rules import (
    Regrouping,
    check_regrouping,
    cuts,
    digest_entries,
    planned_entries,
)
from iceberg_maint.core.model.table_state import FileKind
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.work import RewriteManifests
from iceberg_maint_tests.core.decisions.test_manifests import manifest
from iceberg_maint_tests.support.core.values import BY_P

WORK = RewriteManifests(("m1", "m2"))
BATCH = Batch("b", "lake.db.t", "u", 3, 4, 4, 0, 0, WORK)
KEPT, OTHER = manifest(3), manifest(4, deletes=True)


def entry(path: str, **more: object) -> LiveEntry:
    made = LiveEntry(path, None, FileKind.DATA, ("a",), 1, 1, 11, 100, 10, 1000, None)
    return made._replace(**more)  # type: ignore[arg-type]


LIVE = [entry("f1"), entry("f2", first_row_id=110), entry("f2", content_offset=4)]


def planned(
    before: Sequence[LiveEntry] = LIVE, after: Sequence[LiveEntry] = (*reversed(LIVE),)
) -> Regrouping:
    """m1 and m2 become m9; m3 and the deletes of m4 stay."""
    base = TableVersion("u", 3, 0, {0: BY_P}, 4, 3, 4, (manifest(1), manifest(2), KEPT, OTHER))
    new = replace(base, snapshot_id=5, parent_id=4, sequence_number=5, manifests=(manifest(9), KEPT, OTHER))
    kept = planned_entries(before, BATCH.format_version)
    return Regrouping(base, new, kept.digest, digest_entries(after, kept.without_row_ids))


def test_regrouping_as_planned_passes() -> None:
    assert check_regrouping(BATCH, WORK, planned()) == ()


def test_rows_without_ids_may_gain_them() -> None:
    found = planned([e._replace(first_row_id=None) for e in LIVE])
    assert check_regrouping(BATCH, WORK, found) == ()


@pytest.mark.parametrize(
    "change",
    [
        lambda after: after[1:],
        lambda after: [*after, after[0]],
        lambda after: [*after, entry("f9")],
        *(
            lambda after, f=field, v=value: [after[0]._replace(**{f: v}), *after[1:]]
            for field, value in {
                "path": "f7",
                "content_offset": 9,
                "kind": FileKind.POSITION_DELETES,
                "partition": ("b",),
                "data_sequence_number": 2,
                "file_sequence_number": None,
                "snapshot_id": 5,
                "first_row_id": 7,
                "record_count": 11,
                "size_bytes": 1001,
                "referenced_data_file": "f1",
                "equality_ids": (1,),
                "file_format": "ORC",
                "content_size_bytes": 40,
                "key_metadata": b"k",
                "split_offsets": (4, 900),
                "sort_order_id": 1,
                "statistics": (((1, 500),), ((1, 10),), ((1, 0),), (), ((1, b"a"),), ((1, b"z"),)),
            }.items()
        ),
    ],
)
def test_entry_that_is_not_what_it_was_is_refused(
    change: Callable[[list[LiveEntry]], list[LiveEntry]],
) -> None:
    broken = check_regrouping(BATCH, WORK, planned(after=change(list(LIVE))))
    assert {v.rule for v in broken} == {Rule.ENTRIES}
    assert not is_stale(broken)


@pytest.mark.parametrize(
    "manifests",
    [
        (manifest(9), KEPT),
        (manifest(9), manifest(1), KEPT, OTHER),
        (manifest(9), replace(KEPT, added_files=2), OTHER),
        (manifest(9), manifest(8, spec_id=1), KEPT, OTHER),
        (manifest(9), manifest(8, deletes=True), KEPT, OTHER),
    ],
    ids=["more replaced", "fewer replaced", "other facts", "other spec", "other kind"],
)
def test_other_manifests_than_planned_are_refused(manifests: tuple[object, ...]) -> None:
    found = planned()
    broken = check_regrouping(BATCH, WORK, replace(found, new=replace(found.new, manifests=manifests)))
    assert {v.rule for v in broken} == {Rule.MANIFESTS}
    assert not is_stale(broken)


def test_manifest_that_is_gone_makes_the_plan_stale() -> None:
    found = planned()
    base = replace(found.base, manifests=found.base.manifests[1:])
    broken = check_regrouping(BATCH, WORK, replace(found, base=base))
    assert {v.rule for v in broken} == {Rule.MANIFESTS}
    assert is_stale(broken)


@pytest.mark.parametrize(
    ("version", "changed", "rule"),
    [
        ("both", {"table_uuid": "x"}, Rule.TABLE_UUID),
        ("both", {"format_version": 2}, Rule.FORMAT_VERSION),
        ("new", {"schema_id": 1}, Rule.METADATA),
        ("new", {"specs": {}}, Rule.METADATA),
        ("new", {"parent_id": 3}, Rule.METADATA),
    ],
)
def test_commit_on_another_table_or_with_other_changes_is_refused(
    version: str, changed: dict[str, object], rule: Rule
) -> None:
    found = planned()
    new = replace(found.new, **changed)  # type: ignore[arg-type]
    base = replace(found.base, **changed) if version == "both" else found.base  # type: ignore[arg-type]
    assert {v.rule for v in check_regrouping(BATCH, WORK, replace(found, base=base, new=new))} == {rule}


def test_cuts_are_at_even_numbers_of_files() -> None:
    partitions = [("a",), ("b",), ("b",), ("c",), (None,), ("d",)]
    files = Counter(partitions)
    assert cuts(files, 1) == ()
    assert cuts(files, 2) == (("c",),)
    assert cuts(files, 3) == (("b",), ("c",))
    assert cuts(files, 99) == (("a",), ("b",), ("c",), ("d",))
    assert cuts({}, 3) == ()


@given(
    st.lists(st.tuples(st.none() | st.integers(0, 20), st.none() | st.sampled_from("xyz"))),
    st.integers(1, 8),
)
def test_cuts_make_no_more_runs_than_asked_for_and_none_of_them_empty(
    partitions: list[tuple[int | None, str | None]], clusters: int
) -> None:
    found = cuts(Counter(partitions), clusters)
    assert len(found) < clusters
    assert len(set(found)) == len(found)
    assert set(found) <= set(partitions)
    order = sorted(set(partitions), key=lambda p: [(v is not None, v) for v in p])
    assert not order or order[0] not in found
