"""By which columns a table is laid out: policy before the table's own order, and what bounds can tell of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.health.state_facts import target_sort_order
from iceberg_maint.core.model.partition_key import PartitionField, PartitionSpec
from iceberg_maint.core.model.table_state import LayoutOrder, SortColumn, SortField, TableState
from iceberg_maint.core.policy.data import LayoutPolicy
from iceberg_maint_tests.support.fakes.catalog import fake_table

ID, CAT, TS = (
    SortColumn("id", 1, "long"),
    SortColumn("s.cat", 2, "string"),
    SortColumn("ts", 3, "timestamptz"),
)
BY_CAT = PartitionSpec(0, (PartitionField(1000, 2, "cat", "identity", "string"),))


def state(*fields: SortField, spec: PartitionSpec | None = None) -> TableState:
    made = fake_table("lake.db.t", (), specs=(spec or PartitionSpec(0, ()),)).state
    return replace(
        made,
        key_types={1: "long", 2: "string", 3: "timestamptz", 4: "variant"},
        column_ids={"id": 1, "s.cat": 2, "ts": 3, "v": 4},
        sort_order_id=7 if fields else 0,
        sort_fields=fields,
    )


def test_order_of_an_unsorted_table_without_policy_is_none() -> None:
    assert target_sort_order(state(), LayoutPolicy()) is None


def test_order_of_a_sorted_table_is_its_own_with_its_id() -> None:
    own = (SortField(2, "identity"), SortField(1, "identity", descending=True, nulls_last=True))
    down = replace(ID, descending=True, nulls_last=True)
    assert target_sort_order(state(*own), LayoutPolicy()) == LayoutOrder((CAT, down), (CAT,), sort_order_id=7)


def test_order_is_measured_by_the_first_column_that_varies_in_a_partition() -> None:
    own = (SortField(2, "identity"), SortField(1, "identity"))
    found = target_sort_order(state(*own, spec=BY_CAT), LayoutPolicy())
    assert found == LayoutOrder((CAT, ID), (ID,), sort_order_id=7)


def test_order_that_turns_to_a_transform_is_claimed_by_no_file() -> None:
    own = (SortField(1, "identity"), SortField(3, "day"))
    assert target_sort_order(state(*own), LayoutPolicy()) == LayoutOrder((ID,), (ID,))


@pytest.mark.parametrize(
    "fields",
    [(SortField(1, "bucket[4]"),), (SortField(4, "identity"),), (SortField(99, "identity"),)],
    ids=["transform", "no order", "dropped"],
)
def test_order_that_no_bound_shows_is_none(fields: tuple[SortField, ...]) -> None:
    assert target_sort_order(state(*fields), LayoutPolicy()) is None


def test_order_of_partition_columns_alone_is_none() -> None:
    assert target_sort_order(state(SortField(2, "identity"), spec=BY_CAT), LayoutPolicy()) is None


def test_order_by_policy_comes_before_the_tables_own() -> None:
    table = state(SortField(1, "identity"))
    assert target_sort_order(table, LayoutPolicy(sort_by=("ts desc", "id"))) == LayoutOrder(
        (replace(TS, descending=True, nulls_last=True), ID), (replace(TS, descending=True, nulls_last=True),)
    )
    assert target_sort_order(table, LayoutPolicy(sort_by=("id",))) == LayoutOrder(
        (ID,), (ID,), sort_order_id=7
    )


def test_z_order_measures_every_column_but_those_of_the_partition() -> None:
    policy = LayoutPolicy(z_order_by=("s.cat", "id", "ts"))
    assert target_sort_order(state(), policy) == LayoutOrder((CAT, ID, TS), (CAT, ID, TS), z_order=True)
    assert target_sort_order(state(spec=BY_CAT), policy) == LayoutOrder((ID, TS), (ID, TS), z_order=True)
    assert target_sort_order(state(spec=BY_CAT), LayoutPolicy(z_order_by=("s.cat", "id"))) == LayoutOrder(
        (ID,), (ID,)
    )


def test_order_of_a_disabled_layout_is_none() -> None:
    assert (
        target_sort_order(state(SortField(1, "identity")), LayoutPolicy(enabled=False, sort_by=("id",)))
        is None
    )


@pytest.mark.parametrize(
    ("policy", "key"),
    [
        (LayoutPolicy(sort_by=("nosuch",)), "layout.sort_by names 'nosuch'"),
        (LayoutPolicy(z_order_by=("id", "v")), "layout.z_order_by names 'v'"),
    ],
)
def test_order_by_a_column_that_cannot_be_sorted_is_refused(policy: LayoutPolicy, key: str) -> None:
    with pytest.raises(
        ValueError,
        match=f"^{key}, which is not a sortable column of the table. The sortable columns are id, s.cat, ts, v$",
    ):
        target_sort_order(state(), policy)


def test_refusal_of_a_column_names_twenty_others_at_most() -> None:
    wide = replace(state(), column_ids={f"c{n:02}": n for n in range(1, 22)})
    with pytest.raises(ValueError, match=r"sortable columns are c01, .*c19, c20, …$"):
        target_sort_order(wide, LayoutPolicy(sort_by=("nosuch",)))
