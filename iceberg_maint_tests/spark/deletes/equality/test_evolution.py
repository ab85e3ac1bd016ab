"""Equality deletes on tables that changed: columns, specs, format versions, file formats, branches."""

from __future__ import annotations

import pytest

from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.policy.data import RewriteStrategy, Route
from iceberg_maint_tests.spark.deletes.equality.conftest import Way, name_of
from iceberg_maint_tests.support.spark.equality.reference import Add, Delete, Twin
from iceberg_maint_tests.support.spark.versions import not_on_spark_3

pytestmark = [pytest.mark.spark, pytest.mark.drawn(1)]


def test_renamed_key_columns_stay_the_same_columns(way: Way) -> None:
    """After the names are swapped, whoever goes by name deletes by the wrong column."""
    twin = way.create("tag int, a int, b int")
    twin.append({"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a": 3, "b": 3})
    twin.delete({"a": 1})
    twin.rename_column("a", "c")
    twin.rename_column("b", "a")
    twin.rename_column("c", "b")
    twin.append({"b": 1, "a": 2}, {"b": 2, "a": 1})
    assert twin.delete({"b": 2, "a": 1}) == 2
    way.clean(twin)
    assert twin.tags() == [3, 4]


def test_key_column_added_later_is_null_in_older_files(way: Way) -> None:
    twin = way.create()
    twin.append({"k": 1}, {"k": 2}, {"k": 9})
    twin.delete({"k": 9})
    twin.add_column("z", "int")
    twin.append({"k": 1, "z": 5}, {"k": 1, "z": None}, {"k": 3, "z": None})
    assert twin.delete({"k": 1, "z": None}) == 2
    twin.append({"k": 4})
    assert twin.delete({"z": 5}) == 1
    way.clean(twin)
    assert twin.tags() == [2, 6, 7]


@pytest.mark.variant
@pytest.mark.parametrize(
    "way",
    [
        (3, Route.CONVERT, RewriteStrategy.COLUMNAR),
        (3, Route.REWRITE, RewriteStrategy.COLUMNAR),
        (3, Route.REWRITE, RewriteStrategy.NATIVE),
    ],
    indirect=True,
    ids=name_of,
)
def test_key_column_added_with_a_default_has_it_in_older_files(way: Way) -> None:
    """Format v2 has no defaults."""
    twin = way.create()
    twin.append({"k": 1}, {"k": 2})
    twin.add_column("z", "int", default=7)
    twin.append({"k": 1, "z": None}, {"k": 2, "z": 7}, {"k": 3, "z": 8})
    assert twin.delete({"z": 7, "k": 2}, {"z": None, "k": 2}) == 2
    way.clean(twin)
    assert twin.tags() == [1, 3, 5]


def test_promoted_key_column_matches_files_and_deletes_of_both_types(way: Way) -> None:
    twin = way.create("tag int, k int, c decimal(5, 2)")
    twin.append({"k": 1, "c": "1.00"}, {"k": 2, "c": "2.00"}, {"k": -3, "c": "3.00"}, {"k": 4, "c": "4.00"})
    twin.delete({"k": 1})
    twin.promote_column("k", "long")
    twin.promote_column("c", "decimal(20,2)")
    twin.append({"k": 2**40, "c": "5.00"}, {"k": -3, "c": "99999999999.00"})
    assert twin.delete({"k": 2}, {"k": 2**40}) == 2
    assert twin.delete({"c": "3.00"}, {"c": "99999999999.00"}) == 2
    way.clean(twin)
    assert twin.tags() == [4]


def refused(way: Way, twin: Twin) -> None:
    """A run refuses the key and changes nothing, and nothing of what others do is hidden by it."""
    before = twin.table.currentSnapshot().snapshotId()
    outcomes = way.maintainer.maintain(twin, way.policy)
    assert twin.table.currentSnapshot().snapshotId() == before
    unsupported = {o.reason for o in outcomes if o.outcome is OutcomeStatus.UNSUPPORTED}
    assert unsupported == {Reason.UNSUPPORTED_KEY}


@not_on_spark_3("its reader cannot read such a table at all")
def test_dropped_key_column_is_refused(way: Way) -> None:
    """Iceberg's generic reader cannot read such a table at all; Spark finds the column in an older schema."""
    twin = way.create()
    twin.append({"k": 1, "s": "a"}, {"k": 2, "s": "b"})
    twin.delete({"k": 1})
    twin.drop_column("k")
    refused(way, twin)
    spark = twin.writers.bridge.spark
    assert [tuple(r) for r in spark.table(twin.name).collect()] == [(2, "b")]


@pytest.mark.parametrize("kind", ["float", "double"])
def test_floating_point_key_is_refused(way: Way, kind: str) -> None:
    twin = way.create(f"tag int, k int, x {kind}")
    twin.append({"k": 1, "x": 0.5}, {"k": 2, "x": 1.5})
    twin.delete({"x": 0.5})
    refused(way, twin)
    assert twin.tags() == [2]


@pytest.mark.variant
def test_bucket_and_truncate_scopes_are_those_of_the_transform(way: Way) -> None:
    twin = way.create("tag int, k int, s string", partitioned_by="bucket(2, k), truncate(1, s)")
    twin.append(*({"k": k, "s": s} for k in range(4) for s in ("ax", "ay", None)))
    twin.upsert(["k", "s"], {"k": 0, "s": "ax"}, {"k": 1, "s": None}, {"k": 3, "s": "ay"})
    way.clean(twin)
    assert len(twin.tags()) == 12


def test_global_deletes_of_an_unpartitioned_spec_reach_every_spec(way: Way) -> None:
    twin = way.create("tag int, k int, p int")
    twin.append({"k": 1, "p": 1}, {"k": 2, "p": 1}, {"k": 3, "p": 2})
    twin.partition_by("p")
    twin.append({"k": 1, "p": 1}, {"k": 2, "p": 2})
    # In the scope of spec 1 alone: the rows of spec 0 stay, though they belong to p=1 by value.
    assert twin.delete({"k": 1}, partition=(1,)) == 1
    assert twin.delete({"k": 2}, spec_id=0) == 2
    twin.append({"k": 2, "p": 1}, spec_id=0)
    way.clean(twin)
    assert twin.tags() == [1, 3, 6]


@pytest.mark.variant
def test_partition_scoped_deletes_reach_their_partition_and_spec_only(way: Way) -> None:
    twin = way.create("tag int, k int, p int, q int", partitioned_by="p")
    twin.append(*({"k": 1, "p": p, "q": 1} for p in (1, 2, 3, None)), {"k": 2, "p": None, "q": 1})
    twin.partition_by("q")
    twin.append({"k": 1, "p": 1, "q": 1}, {"k": 1, "p": 1, "q": 2}, {"k": 1, "p": None, "q": None})
    assert twin.delete({"k": 1}, partition=(1, 1)) == 1
    assert twin.delete({"k": 1}, partition=(None, None)) == 1
    assert twin.delete({"k": 1}, spec_id=0, partition=(2,)) == 1
    assert twin.delete({"k": 1}, spec_id=0, partition=(None,)) == 1
    way.clean(twin)
    assert twin.tags() == [1, 3, 5, 7]


@pytest.mark.variant
def test_deletes_of_a_spec_whose_only_field_is_void_are_global(way: Way) -> None:
    """Format v1 keeps a removed partition field as `void`; such a spec counts as unpartitioned."""
    twin = way.create("tag int, k int, p int", version=1, partitioned_by="p")
    twin.append({"k": 1, "p": 1}, {"k": 1, "p": 2}, {"k": 2, "p": 1})
    twin.table.updateSpec().removeField("p").commit()
    twin.append({"k": 1, "p": 1}, {"k": 3, "p": 1})
    twin.upgrade(way.version)
    assert twin.table.spec().isUnpartitioned()
    assert twin.delete({"k": 1}, partition=(None,)) == 3
    way.clean(twin)
    assert twin.tags() == [3, 5]


@pytest.mark.variant
def test_v1_table_upgraded_twice_keeps_its_rows(way: Way) -> None:
    """Files of format v1 have sequence number 0; those of v2 no row ids until v3 gives them some."""
    twin = way.create(version=1)
    twin.append({"k": 1}, {"k": 2}, {"k": 3}, {"k": 4})
    twin.upgrade(2)
    twin.delete({"k": 1})
    twin.append({"k": 1}, {"k": 5})
    twin.delete_rows(2)
    if way.version == 3:
        twin.upgrade(3)
    twin.upsert(["k"], {"k": 3}, {"k": 5})
    way.clean(twin)
    assert twin.tags() == [4, 5, 7, 8]


@pytest.mark.variant
def test_v2_position_deletes_of_an_upgraded_table_join_the_deletion_vector(way: Way) -> None:
    twin = way.create(version=2)
    twin.append(*({"k": k} for k in range(6)))
    twin.delete_rows(1, 2)
    twin.upgrade(way.version)
    twin.delete({"k": 2})
    twin.append({"k": 2})
    twin.delete_rows(4)
    twin.delete({"k": 4})
    way.clean(twin)
    assert twin.tags() == [6, 7]


@pytest.mark.variant
@pytest.mark.parametrize("kind", ["orc", "avro"])
def test_file_formats_read_as_parquet_does(way: Way, kind: str) -> None:
    formats = {"write.format.default": kind, "write.delete.format.default": kind}
    twin = way.create("tag int, k int, s string, n struct<x: int>", **formats)
    twin.append(
        {"k": 1, "s": "a", "n.x": 1}, {"k": None, "s": "b", "n.x": 2}, {"k": 3, "s": "c", "n.x": None}
    )
    twin.delete({"k": None})
    twin.promote_column("k", "long")
    twin.rename_column("s", "name")
    twin.delete({"name": "c", "n.x": None})
    twin.append({"k": 2**40, "name": "d", "n.x": 3}, {"k": 4, "name": "e", "n.x": 4})
    twin.delete({"k": 2**40})
    way.clean(twin, are_all_parquet=False)
    assert twin.tags() == [1, 5]


@pytest.mark.variant
def test_mixed_file_formats_of_data_and_deletes_apply_to_each_other(way: Way) -> None:
    twin = way.create()
    for kind, deletes in (("avro", "parquet"), ("orc", "avro"), ("parquet", "orc")):
        table = twin.table
        table.updateProperties().set("write.format.default", kind).set(
            "write.delete.format.default", deletes
        ).commit()
        twin.append({"k": 1, "s": kind}, {"k": 2, "s": kind})
        twin.commit(Delete([{"k": 1}]), Add(twin.tagged([{"k": 3, "s": kind}])))
    way.clean(twin, are_all_parquet=False)
    assert twin.tags() == [2, 3, 5, 6, 8, 9]


def test_branches_other_than_main_are_left_alone(way: Way) -> None:
    twin = way.create()
    twin.append({"k": 1}, {"k": 2}, {"k": 3})
    table = twin.table
    table.manageSnapshots().createBranch("audit", table.currentSnapshot().snapshotId()).createTag(
        "first", table.currentSnapshot().snapshotId()
    ).commit()
    twin.commit(Delete([{"k": 2}]), branch="audit")
    twin.delete({"k": 1})
    head = int(twin.table.snapshot("audit").snapshotId())
    audit, deletes = twin.read(head), twin.live_equality_deletes("audit")
    assert sorted(audit.lineage) == [1, 3]
    assert len(deletes) == 1
    way.clean(twin)
    assert twin.tags() == [2, 3]
    assert int(twin.table.snapshot("audit").snapshotId()) == head
    assert (twin.read(head), twin.live_equality_deletes("audit")) == (audit, deletes)
    first = int(twin.table.snapshot("first").snapshotId())
    assert sorted(twin.read(first).lineage) == [1, 2, 3]


@pytest.mark.variant
def test_deletes_of_partitions_not_asked_for_stay(way: Way) -> None:
    twin = way.create("tag int, k int, p int", partitioned_by="p")
    twin.append(*({"k": k, "p": p} for k in (1, 2) for p in (1, 2)))
    twin.upsert(["k"], {"k": 1, "p": 1}, {"k": 1, "p": 2})
    before = twin.live_equality_deletes()
    way.maintainer.heal(twin, way.policy, partitions=frozenset({"p=1"}))
    kept = twin.live_equality_deletes()
    assert (len(before), len(kept)) == (2, 1)
    assert twin.applied_equality_deletes() == set(kept)
    assert set(kept) < set(before)
    way.clean(twin)
    assert twin.live_equality_deletes() == {}
