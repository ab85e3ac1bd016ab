"""The oracle: the model and Iceberg's generic reader agree on tables that nobody maintains."""

from __future__ import annotations

import pytest

from iceberg_maint_tests.support.spark.equality.maintainer import Maintainer
from iceberg_maint_tests.support.spark.equality.reference import Add, Delete

pytestmark = [pytest.mark.spark, pytest.mark.drawn(1)]


@pytest.mark.variant
def test_twin_after_every_kind_of_commit_reads_as_its_model(maintainer: Maintainer, version: int) -> None:
    twin = maintainer.create("tag int, k int, s string, p int, n struct<x: int>", version=version)
    twin.append({"k": 1, "s": "a", "n.x": 5}, {"k": None, "s": None}, {"k": 3, "s": "c", "p": 1})
    assert twin.delete({"k": None}) == 1
    twin.check()
    twin.upsert(["k"], {"k": 1, "s": "new", "n.x": 6}, {"k": 4, "n.x": 7})
    twin.partition_by("p")
    twin.append({"k": 5, "p": 1}, {"k": 5, "p": 2}, {"k": 5})
    assert twin.delete({"k": 5}, partition=(2,)) == 1
    assert twin.delete({"n.x": 7}, spec_id=0) == 1
    twin.rename_column("k", "key")
    twin.promote_column("key", "long")
    twin.add_column("z", "int")
    assert twin.delete({"z": None, "key": 3}, spec_id=0) == 1
    twin.check()
    twin.delete_rows(twin.next_tag - 1)
    twin.check()
    twin.commit(Delete([{"key": 5}], 1, (1,)), Add(twin.tagged([{"key": 2**40, "p": 1}])))
    twin.check()
    assert len(twin.model.rows) == 2


def test_twin_whose_table_differs_from_its_model_fails_the_check(maintainer: Maintainer) -> None:
    twin = maintainer.create()
    twin.append({"k": 1}, {"k": 2})
    twin.model.rows.pop()
    with pytest.raises(AssertionError):
        twin.check()


def test_twin_whose_rows_changed_their_lineage_fails_the_check(maintainer: Maintainer) -> None:
    twin = maintainer.create(version=3)
    twin.append({"k": 1})
    twin.check()
    twin.lineage[1] = (7, 7)
    with pytest.raises(AssertionError, match="lineage"):
        twin.check()
