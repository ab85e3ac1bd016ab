"""Position delete files whose metadata names one data file, and whose rows name another too: no commit drops them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import RewriteStrategy
from iceberg_maint.errors import RefusedError
from iceberg_maint_tests.support.spark.entries import path_bounds, stating
from iceberg_maint_tests.support.spark.position_deletes import mark, paths, planned, table
from iceberg_maint_tests.support.spark.workshop import FULL, Workshop, workshop_of

pytestmark = [pytest.mark.spark, pytest.mark.drawn(1)]


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    return workshop_of(spark, lake_dir)


def mark_with(shop: Workshop, name: str, positions: Mapping[str, Sequence[int]], path: str) -> str:
    """Commits a position delete file that marks `path` only, by the bounds in its manifest entry. Returns its own path."""
    java = shop.writers.load(name)
    file = shop.writers.position_deletes(java, positions)
    shop.writers.add_deletes(java, stating(shop.bridge, java, file, **path_bounds(path)))
    return str(file.location())


def refusal(shop: Workshop, batch: Batch, strategy: RewriteStrategy = RewriteStrategy.COLUMNAR) -> str:
    policy = replace(FULL, rewrite_data_files=replace(FULL.rewrite_data_files, strategy=strategy))
    with pytest.raises(RefusedError) as refused:
        shop.engine.write(batch, policy)
    return str(refused.value)


def text(name: str, delete: str, found: str, stated: str) -> str:
    return (
        f"ICM-101 {name}: the delete file {delete} deletes rows of {found}; its manifest states that it names {stated} only. "
        "Fix: remove the delete file from the table, and have the engine that wrote it delete its rows again."
    )


@pytest.mark.parametrize("strategy", [RewriteStrategy.COLUMNAR, RewriteStrategy.NATIVE])
def test_rewrite_of_the_stated_data_file_is_refused(shop: Workshop, strategy: RewriteStrategy) -> None:
    name = table(shop, range(10), range(10, 20))
    first, second = paths(shop, name)
    delete = mark_with(shop, name, {first: [1], second: [2, 3]}, first)
    batch = shop.batch(name, strategy=strategy)
    assert refusal(shop, batch, strategy) == text(name, delete, second, first)


@pytest.mark.variant
def test_rewrite_of_true_deletes_is_not_refused(shop: Workshop) -> None:
    name = table(shop, range(10), range(10, 20))
    first, second = paths(shop, name)
    mark_with(shop, name, {first: [1]}, first)
    mark(shop, name, {first: [2], second: [2]})
    for strategy in (RewriteStrategy.COLUMNAR, RewriteStrategy.NATIVE):
        policy = replace(FULL, rewrite_data_files=replace(FULL.rewrite_data_files, strategy=strategy))
        proof = shop.engine.write(shop.batch(name, strategy=strategy), policy).proof
        assert (proof.equal, proof.input_records, proof.output_records) == (True, 20, 17)


@pytest.mark.parametrize("version", [2, 3])
def test_merge_and_conversion_are_refused(shop: Workshop, version: int) -> None:
    name = table(shop, range(10), range(10, 20))
    first, second = paths(shop, name)
    delete = mark_with(shop, name, {first: [1], second: [2]}, first)
    mark(shop, name, {first: [4]})
    if version == 3:
        shop.sql(f"alter table {name} set tblproperties ('format-version'='3')")
    assert refusal(shop, planned(shop, name)) == text(name, delete, second, first)
    if version == 3:
        # In v2 a conversion keeps a delete file with more rows than positions of its data file.
        shop.writers.delete_where(shop.writers.load(name), [{"id": 5}])
        batch = shop.cleaning(name, Operation.CONVERT_EQUALITY_DELETES)
        assert refusal(shop, batch) == text(name, delete, second, first)


def test_dangling_delete_by_bounds_that_are_cut_is_read_and_kept(shop: Workshop) -> None:
    """As a writer leaves them that cuts both bounds at 16 characters: they name no live data file."""
    name = table(shop, range(10), range(10, 20))
    first, second = paths(shop, name)
    delete = mark_with(shop, name, {first: [1], second: [2]}, first[:16])
    assert refusal(shop, planned(shop, name)) == text(name, delete, min(first, second), first[:16])


def test_dangling_delete_whose_file_is_lost_is_dropped(shop: Workshop) -> None:
    name = table(shop, range(10))
    [first] = paths(shop, name)
    delete = mark_with(shop, name, {first: [1]}, f"{first}.old")
    Path(delete.removeprefix("file:")).unlink()
    batch = planned(shop, name)
    assert [(d.path, d.void) for d in batch.position_deletes] == [(delete, True)]
    assert shop.engine.write(batch, FULL).proof.equal
