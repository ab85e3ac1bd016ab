"""Merges of position deletes while others write, and what is not proved and so not committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from iceberg_maint.core.commits.change import Rule
from iceberg_maint.core.outcomes.outcome import CommitResult, CommitStatus, Rejection
from iceberg_maint.engines.spark.deletes import merge_position_deletes
from iceberg_maint.errors import RefusedError
from iceberg_maint_tests.support.spark.equality_deletes import deletes_of, rows_of
from iceberg_maint_tests.support.spark.position_deletes import (
    POSITIONS,
    mark,
    paths,
    planned,
    registered_again,
    swap,
    table,
    twice_marked,
    unguarded,
)
from iceberg_maint_tests.support.spark.workshop import FULL, Workshop, workshop_of

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    return workshop_of(spark, lake_dir)


def raced(shop: Workshop, name: str, then: Any) -> tuple[CommitResult, list[tuple[Any, ...]]]:
    """What becomes of a merge during which `then` was done, and the rows right before its commit."""
    batch = planned(shop, name)
    written = shop.engine.write(batch, FULL)
    then()
    before = shop.writers.rows(name)
    result = shop.commit(batch, written)
    assert shop.writers.rows(name) == before
    return result, before


@pytest.mark.variant
def test_merge_beside_an_append_and_another_delete_is_committed(shop: Workshop) -> None:
    name, a, _ = twice_marked(shop)

    def then() -> None:
        shop.writers.append(shop.writers.load(name), rows_of([99]))
        mark(shop, name, {a: [5]})

    result, before = raced(shop, name, then)
    assert result.status is CommitStatus.COMMITTED
    assert (99, "a") in before
    assert deletes_of(shop, name)[a] == Counter({POSITIONS: 2})


@pytest.mark.variant
def test_merge_of_a_data_file_that_was_rewritten_since_is_stale(shop: Workshop) -> None:
    name, _, _ = twice_marked(shop)
    batch = shop.batch(name)
    done = shop.engine.write(batch, FULL)
    result, _ = raced(shop, name, lambda: shop.commit(batch, done))
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, Rejection.STALE)


def test_merge_of_a_data_file_that_was_registered_again_is_stale(shop: Workshop) -> None:
    """Without the gate the table cannot be read: the vector is older than its data file."""
    name, a, _ = twice_marked(shop, version=3)
    batch = planned(shop, name)
    written = shop.engine.write(batch, FULL)
    registered_again(shop, name, a)
    assert unguarded(shop, batch, written).status is CommitStatus.COMMITTED
    with pytest.raises(Py4JJavaError, match="DV data sequence number"):
        shop.writers.rows(name)

    name, a, _ = twice_marked(shop, version=3)
    result, _ = raced(shop, name, lambda: registered_again(shop, name, a))
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, Rejection.STALE)
    assert Rule.IDENTITY in result.message


@pytest.mark.variant
def test_merge_of_a_delete_file_that_was_registered_again_is_stale(shop: Workshop) -> None:
    """The gate says so before Iceberg's validation has a say."""
    name, _, _ = twice_marked(shop)
    java = shop.writers.load(name)

    def then() -> None:
        delete = next(d for t in shop.writers.tasks(java) for d in shop.bridge.iterate(t.deletes()))
        java.newRowDelta().removeDeletes(delete).commit()
        java.newRowDelta().addDeletes(delete).commit()

    result, _ = raced(shop, name, then)
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, Rejection.STALE)
    assert Rule.IDENTITY in result.message


@pytest.mark.variant
def test_second_deletion_vector_of_a_file_is_stale(shop: Workshop) -> None:
    name, _, _ = twice_marked(shop, version=3)
    result, _ = raced(shop, name, lambda: shop.sql(f"delete from {name} where id in (3, 13)"))
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, Rejection.STALE)


def test_file_added_since_with_an_old_number_makes_a_partition_scoped_drop_stale(
    shop: Workshop,
) -> None:
    name = table(shop, range(10), range(10, 20), range(20, 30))
    a, b, _ = paths(shop, name)
    mark(shop, name, {a: [0], b: [0]})

    def then() -> None:
        java = shop.writers.load(name)
        swap(java, shop.writers.files(java)[2], shop.writers.data(java, rows_of(range(20, 30))), number=1)

    result, _ = raced(shop, name, then)
    assert (result.status, result.rejection) == (CommitStatus.REJECTED, Rejection.STALE)
    assert "needed_delete" in result.message


# what is not proved is not committed


def test_lost_position_is_found_by_what_the_reader_sees(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, a, _ = twice_marked(shop)
    batch = planned(shop, name)
    whole = merge_position_deletes._deleted_positions

    def losing(*arguments: Any) -> dict[str, Any]:
        found = whole(*arguments)
        found[a].remove(1)
        return found

    monkeypatch.setattr(merge_position_deletes, "_deleted_positions", losing)
    found = shop.engine.write(batch, FULL).proof
    assert not found.equal
    assert "2 positions" in found.detail
    assert a in found.detail


def test_delete_file_that_holds_fewer_positions_than_listed_is_refused(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, _, _ = twice_marked(shop)
    batch = planned(shop, name)
    whole = merge_position_deletes.position_delete_rows

    @contextmanager
    def losing(*arguments: Any) -> Iterator[DataFrame]:
        with whole(*arguments) as rows:
            yield rows.where("pos > 0")

    monkeypatch.setattr(merge_position_deletes, "position_delete_rows", losing)
    with pytest.raises(RefusedError, match=r" has 0 rows; its manifest states 2\."):
        shop.engine.write(batch, FULL)
