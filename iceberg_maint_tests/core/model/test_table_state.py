"""Facts of a pinned snapshot: ancestry, fences, tokens; names of tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.partition_key import PartitionSpec
from iceberg_maint.core.model.table_state import (
    FENCE_PROPERTY,
    INSTALLATION_PROPERTY,
    TOKEN_PROPERTY,
    Manifest,
    Snapshot,
    TableState,
)
from iceberg_maint_tests.support.core.values import BY_P, data, table_of


def snapshot(snapshot_id: int, parent_id: int | None, **summary: str) -> Snapshot:
    return Snapshot(snapshot_id, parent_id, snapshot_id, 0, "append", summary, "")


def state_of(*snapshots: Snapshot, head: int) -> TableState:
    state = table_of([data("a", 1)]).state
    return replace(state, snapshots=snapshots, snapshot=next(s for s in snapshots if s.snapshot_id == head))


def test_ancestors_run_from_head_to_the_first_retained() -> None:
    branch = snapshot(9, 2)
    state = state_of(snapshot(2, 1), snapshot(3, 2), branch, snapshot(4, 3), head=4)
    assert [s.snapshot_id for s in state.ancestors()] == [4, 3, 2]


def test_ancestors_in_a_ring_are_each_there_once() -> None:
    state = state_of(snapshot(1, 2), snapshot(2, 1), head=2)
    assert [s.snapshot_id for s in state.ancestors()] == [2, 1]


def test_ancestors_of_an_empty_table_are_none() -> None:
    assert table_of([]).state.ancestors() == ()


def test_newest_fence_is_the_highest_of_ours() -> None:
    state = state_of(
        snapshot(1, None, **{FENCE_PROPERTY: "7"}),
        snapshot(2, 1, **{FENCE_PROPERTY: "12"}),
        snapshot(3, 2),
        head=3,
    )
    assert state.newest_fence() == 12
    assert table_of([]).state.newest_fence() == 0


def test_newest_fence_of_an_installation_omits_those_of_others() -> None:
    state = state_of(
        snapshot(1, None, **{TOKEN_PROPERTY: "s", FENCE_PROPERTY: "7"}),
        snapshot(2, 1, **{TOKEN_PROPERTY: "t", FENCE_PROPERTY: "9", INSTALLATION_PROPERTY: "one"}),
        snapshot(3, 2, **{TOKEN_PROPERTY: "u", FENCE_PROPERTY: "12", INSTALLATION_PROPERTY: "two"}),
        head=3,
    )
    assert state.newest_fence("one") == 9
    assert state.newest_fence("two") == 12
    assert state.newest_fence("three") == 7
    assert state.newest_fence() == 12


def test_snapshot_is_found_by_token_and_id() -> None:
    ours = snapshot(2, 1, **{TOKEN_PROPERTY: "t"})
    state = state_of(snapshot(1, None), ours, head=2)
    assert state.snapshot_by_token("t") is ours
    assert state.snapshot_by_token("u") is None
    assert state.snapshot_by_id(2) is ours
    assert state.snapshot_by_id(7) is None


def test_first_spec_stays_when_it_was_cleaned_up() -> None:
    state = table_of([data("a", 1)], specs=[BY_P, PartitionSpec(3, ())]).state
    assert state.first_spec_id == 0
    assert replace(state, specs={3: PartitionSpec(3, ())}).first_spec_id == 0


@pytest.mark.parametrize("text", ["", "a", "a.b", "a..b", ".a.b", "a.b."])
def test_table_id_needs_catalog_namespace_and_name(text: str) -> None:
    with pytest.raises(ValueError, match="is not a table name of the form"):
        TableId.parse(text)


def test_table_id_comes_back() -> None:
    table = TableId.parse("lake.a.b.t")
    assert (table.catalog, table.namespace, table.name) == ("lake", ("a", "b"), "t")
    assert str(table) == "lake.a.b.t"
    assert table.in_catalog == ("a", "b", "t")


def test_manifest_that_gets_row_ids_with_the_first_commit_in_v3_is_the_same_manifest() -> None:
    manifest = Manifest("m.avro", 100, False, 0, 1, 1, 1, 1, 0, 0, 10, 0)
    assert replace(manifest, first_row_id=40) == manifest
    assert replace(manifest, sequence_number=2) != manifest
