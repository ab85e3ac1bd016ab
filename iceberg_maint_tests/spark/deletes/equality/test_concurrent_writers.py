"""Others write between the write of a batch and its commit: nothing of theirs is lost or undone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from iceberg_maint.core.planning.plan import Batch
from iceberg_maint_tests.spark.deletes.equality.conftest import Way
from iceberg_maint_tests.support.spark.equality.reference import Twin

pytestmark = [pytest.mark.spark, pytest.mark.drawn(1)]


def sick(way: Way) -> Twin:
    """Six rows of two files, two of them deleted by key."""
    twin = way.create()
    twin.append({"k": 1}, {"k": 2}, {"k": 3})
    twin.append({"k": 4}, {"k": 5}, {"k": 6})
    twin.delete({"k": 1}, {"k": 4})
    return twin


def once(write: Callable[[], object]) -> Callable[[Batch], None]:
    """Others who write while the first batch waits for its commit, and not again when it is planned again."""
    told: list[Batch] = []

    def between(batch: Batch) -> None:
        if not told:
            told.append(batch)
            write()

    return between


def heal(way: Way, twin: Twin, write: Callable[[], object]) -> None:
    """Cleaned while others write, and once more after them."""
    way.maintainer.heal(twin, way.policy, between=once(write))
    way.maintainer.heal(twin, way.policy)
    assert twin.applied_equality_deletes() == set()


@pytest.mark.variant
def test_concurrent_append_is_kept_even_of_a_deleted_key(way: Way) -> None:
    twin = sick(way)
    heal(way, twin, lambda: twin.append({"k": 1}, {"k": 7}))
    assert twin.tags() == [2, 3, 5, 6, 7, 8]


@pytest.mark.variant
def test_concurrent_upsert_is_kept_with_its_delete(way: Way) -> None:
    twin = sick(way)
    heal(way, twin, lambda: twin.upsert(["k"], {"k": 1}, {"k": 2}))
    assert twin.tags() == [3, 5, 6, 7, 8]


def test_concurrent_equality_delete_and_append_bring_nothing_back(way: Way) -> None:
    """apache/iceberg#10312: a rewrite of every older file takes the newer delete along."""
    twin = sick(way)

    def others() -> None:
        twin.delete({"k": 2})
        twin.append({"k": 9})

    heal(way, twin, others)
    assert twin.tags() == [3, 5, 6, 7]


@pytest.mark.variant
def test_concurrent_equality_delete_alone_is_kept(way: Way) -> None:
    twin = sick(way)
    heal(way, twin, lambda: twin.delete({"k": 2}, {"k": 5}))
    assert twin.tags() == [3, 6]


def test_concurrent_position_delete_is_kept(way: Way) -> None:
    """A deletion vector in place of one with more positions would bring rows back."""
    twin = sick(way)
    heal(way, twin, lambda: twin.delete_rows(2, 5))
    assert twin.tags() == [3, 6]


@pytest.mark.variant
def test_concurrent_compaction_is_kept(way: Way) -> None:
    """Our files are gone by the commit; the run plans again on what is there."""
    twin = sick(way)
    call = (
        f"call lake.system.rewrite_data_files(table => '{twin.name.removeprefix('lake.')}', "
        "options => map('rewrite-all', 'true'))"
    )
    heal(way, twin, lambda: twin.writers.sql(call))
    assert twin.tags() == [2, 3, 5, 6]


@pytest.mark.variant
def test_concurrent_new_partition_spec_moves_no_row_into_a_delete(way: Way) -> None:
    """What is written again must not come into the scope of a delete it was not in."""
    twin = way.create("tag int, k int, p int")
    twin.append({"k": 1, "p": 1}, {"k": 2, "p": 1})
    twin.delete({"k": 1})

    def others() -> None:
        twin.partition_by("p")
        twin.append({"k": 3, "p": 1})
        twin.delete({"k": 2}, {"k": 3}, partition=(1,))

    heal(way, twin, others)
    assert twin.tags() == [2]


@pytest.mark.variant
def test_concurrent_new_key_column_changes_no_row(way: Way) -> None:
    twin = sick(way)

    def others() -> None:
        twin.add_column("z", "int")
        twin.append({"k": 9, "z": 1})

    heal(way, twin, others)
    assert twin.tags() == [2, 3, 5, 6, 7]
