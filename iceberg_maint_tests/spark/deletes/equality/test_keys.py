"""Which rows equality deletes delete: keys, nulls, order, schemas of deletes. Each on v2 and v3 and by both
routes (`conftest.WAYS`); `clean` compares with the model, the lineage with what it was, and what is left to apply with nothing."""

from __future__ import annotations

from typing import Any

import pytest

from iceberg_maint.core.outcomes.outcome import SUCCESSFUL, OutcomeStatus
from iceberg_maint.core.policy.data import Route
from iceberg_maint_tests.spark.deletes.equality.conftest import Way
from iceberg_maint_tests.support.spark.equality.reference import Add, Delete

pytestmark = [pytest.mark.spark, pytest.mark.drawn(1)]


@pytest.mark.variant
def test_composite_keys_delete_only_where_all_columns_are_equal(way: Way) -> None:
    twin = way.create()
    twin.append({"k": 1, "s": "a"}, {"k": 1, "s": "b"}, {"k": 2, "s": "a"}, {"k": 2, "s": "b"})
    twin.append({"k": 3, "s": "a"}, {"k": 3, "s": "b"})
    twin.delete({"k": 1, "s": "a"}, {"k": 2, "s": "b"})
    twin.delete({"s": "b", "k": 3})
    way.clean(twin)
    assert twin.tags() == [2, 3, 5]


@pytest.mark.variant
def test_null_keys_equal_null_and_nothing_else(way: Way) -> None:
    twin = way.create()
    twin.append({"k": None, "s": "a"}, {"k": 0, "s": ""}, {"k": None, "s": None}, {"k": 1, "s": None})
    twin.delete({"k": None})
    twin.append({"k": None, "s": None}, {"k": None, "s": "b"}, {"k": 0, "s": None})
    twin.delete({"k": None, "s": None}, {"k": 0, "s": ""})
    way.clean(twin)
    assert twin.tags() == [4, 6, 7]


@pytest.mark.variant
def test_deletes_apply_to_older_rows_and_never_to_those_of_their_own_commit(way: Way) -> None:
    twin = way.create()
    twin.append({"k": 1, "s": "old"}, {"k": 2, "s": "old"})
    twin.commit(Delete([{"k": 1}]), Add(twin.tagged([{"k": 1, "s": "new"}])))
    twin.append({"k": 2, "s": "again"})
    way.clean(twin)
    assert twin.tags() == [2, 3, 4]
    assert twin.delete({"k": 1}) == 1
    twin.append({"k": 1, "s": "newest"})
    way.clean(twin)
    assert twin.tags() == [2, 4, 5]


@pytest.mark.variant
def test_duplicates_of_a_key_are_deleted_up_to_the_last_delete_of_it(way: Way) -> None:
    twin = way.create()
    twin.append({"k": 1}, {"k": 1}, {"k": 2}, {"k": 1})
    for _ in range(2):
        twin.append({"k": 1}, {"k": 2})
        twin.upsert(["k"], {"k": 1, "s": "x"})
    assert twin.delete({"k": 1}, {"k": 1}) == 1
    twin.append({"k": 1})
    way.clean(twin)
    assert twin.tags() == [3, 6, 9, 11]


@pytest.mark.variant
def test_deletes_of_several_schemas_each_delete_by_their_own_columns(way: Way) -> None:
    twin = way.create("tag int, k int, s string, z int")
    twin.append(*({"k": k, "s": s, "z": k} for k in (1, 2, 3) for s in ("a", "b")))
    twin.delete({"k": 1})
    twin.delete({"s": "b", "k": 2})
    twin.append({"k": 1, "s": "a", "z": 9}, {"k": 2, "s": "b", "z": 3})
    twin.delete({"z": 3})
    twin.delete({"k": 2, "s": "a", "z": 2}, {"k": 2, "s": "a", "z": None})
    way.clean(twin)
    assert twin.tags() == [7]


@pytest.mark.variant
def test_all_rows_of_a_file_deleted_leaves_the_others(way: Way) -> None:
    twin = way.create()
    twin.append({"k": 1}, {"k": 2})
    twin.append({"k": 3})
    twin.delete({"k": 1}, {"k": 2})
    way.clean(twin)
    assert twin.tags() == [3]


def test_all_rows_of_the_table_deleted_leaves_an_empty_table(way: Way) -> None:
    twin = way.create()
    twin.append({"k": 1}, {"k": None})
    twin.delete({"k": 1}, {"k": None})
    way.clean(twin)
    assert twin.tags() == []
    twin.append({"k": 1})
    twin.check()


@pytest.mark.variant
def test_deletes_that_match_nothing_go_and_delete_nothing(way: Way) -> None:
    twin = way.create()
    twin.append({"k": 1, "s": "a"}, {"k": 9, "s": "b"})
    assert twin.delete({"k": 5}, {"k": 7}) == 0
    way.clean(twin)
    assert twin.tags() == [1, 2]
    assert twin.live_equality_deletes() == {}


def test_keys_inside_a_struct_are_keys_and_no_struct_is_not_one_of_nulls(way: Way) -> None:
    twin = way.create("tag int, k int, n struct<x: int, y: string>")
    twin.append({"k": 1, "n.x": 1, "n.y": "a"}, {"k": 2, "n.x": 2}, {"k": 3}, {"k": 4, "n.y": "b"})
    assert twin.delete({"n.x": 1}) == 1
    assert twin.delete({"n.x": None}) == 1
    way.clean(twin)
    assert twin.tags() == [2, 3]


def test_null_struct_around_a_required_key_is_deleted_where_icebergs_scan_omits_the_delete(way: Way) -> None:
    twin = way.create("tag int, k int, n struct<x: int not null, y: string>")
    twin.append({"k": 1, "n.x": 1}, {"k": 2})
    assert twin.delete({"n.x": 5}, {"n": None}) == 1
    assert (twin.applied_equality_deletes(), twin.tags()) == (set(), [1, 2])
    outcomes = way.maintainer.maintain(twin, way.policy)
    assert [o.outcome for o in outcomes].count(OutcomeStatus.IMPROVED) == 1
    assert twin.table.currentSnapshot().summary()["total-equality-deletes"] == "0"
    assert twin.tags() == [1]


def test_keys_of_every_type_compare_by_value(way: Way) -> None:
    twin = way.create(
        "tag int, i bigint, t string, b boolean, c decimal(20, 2), d date, e timestamp, f binary"
    )
    java = twin.writers.bridge.jvm.java

    def day(text: str) -> Any:
        return java.time.LocalDate.parse(text)

    def moment(text: str) -> Any:
        return java.time.OffsetDateTime.parse(text)

    same = {"i": -(2**40), "t": "", "b": False, "c": "-1.50", "d": day("2024-02-29"), "f": ""}
    same["e"] = moment("2024-02-29T00:00:00Z")
    other = {"i": 2**40, "t": "ä\u0000€", "b": True, "c": "12345678901234567.89", "f": "00FF"}
    other |= {"d": day("1969-12-31"), "e": moment("1969-12-31T23:59:59.999999Z")}
    keys = [{column: value} for column, value in other.items()]
    twin.append(same, *({**same, **key} for key in keys), {**other, "b": False})
    for key in keys[:3]:
        twin.delete(key)
    assert len(twin.model.rows) == 5
    for key in keys[3:]:
        twin.delete(key)
    twin.append(other)
    way.clean(twin)
    assert twin.tags() == [1, 10]


@pytest.mark.variant
def test_position_deletes_and_equality_deletes_of_one_file_both_apply(way: Way) -> None:
    twin = way.create()
    twin.append(*({"k": k} for k in range(6)))
    twin.delete_rows(1, 2)
    twin.delete({"k": 1}, {"k": 2}, {"k": 3})
    twin.append({"k": 2})
    way.clean(twin)
    assert twin.tags() == [5, 6, 7]
    twin.delete_rows(5)
    twin.delete({"k": 2})
    way.clean(twin)
    assert twin.tags() == [6]
    marks = sum(
        int(delete.recordCount())
        for task in twin.writers.tasks(twin.table)
        for delete in twin.writers.bridge.iterate(task.deletes())
    )
    # No row is marked twice: five of the first file, the only one of the second.
    assert marks == 6 or way.route is Route.REWRITE


@pytest.mark.parametrize("kind", ["string", "timestamp"])
def test_delete_file_whose_bounds_do_not_cover_its_keys_is_refused_and_other_partitions_are_cleaned(
    way: Way, kind: str
) -> None:
    twin = way.create(f"tag int, k {kind}, s string", partitioned_by="s")
    java = twin.writers.bridge.jvm.java.time
    low, middle, high = {
        "string": ("a", "m", "z"),
        "timestamp": [java.OffsetDateTime.parse(f"2024-02-0{n}T00:00:00Z") for n in (1, 5, 9)],
    }[kind]
    for s in "ab":
        twin.append({"k": low, "s": s}, {"k": middle, "s": s})
    twin.delete({"k": low}, partition=("a",))
    table = twin.table
    delete = twin.writers.equality_deletes(table, [{"k": low}], partition=("b",))
    elsewhere = twin.writers.equality_deletes(table, [{"k": high}], partition=("b",))
    metrics = twin.writers.iceberg.Metrics(
        1, None, delete.valueCounts(), delete.nullValueCounts(), None,
        elsewhere.lowerBounds(), elsewhere.upperBounds(),
    )  # fmt: skip
    copied = twin.writers.iceberg.FileMetadata.deleteFileBuilder(table.spec()).copy(delete)
    copied = copied.ofEqualityDeletes(twin.writers.bridge.ints([2]))
    twin.writers.add_deletes(table, copied.withMetrics(metrics).build())
    assert twin.tags() == [2, 3, 4]
    outcomes = [o for _ in range(2) for o in way.maintainer.maintain(twin, way.policy)]
    refused = {b.message for o in outcomes for b in o.batches if b.outcome not in SUCCESSFUL}
    assert {m.split()[0] for m in refused} == {"ICM-119"}
    assert all(str(delete.location()) in m and "column k" in m for m in refused)
    assert twin.tags() == [2, 3, 4]
    assert set(twin.live_equality_deletes()) == {str(delete.location())}
