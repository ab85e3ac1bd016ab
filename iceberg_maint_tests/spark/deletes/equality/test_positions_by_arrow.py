"""Where Arrow finds the deleted rows, and where the join does. Both leave the same rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from iceberg_maint.core.policy.data import RewriteStrategy, Route
from iceberg_maint.engines.spark.rewrite.columnar import key_positions, tasks
from iceberg_maint.engines.spark.scan import positions
from iceberg_maint_tests.spark.deletes.equality.conftest import Way
from iceberg_maint_tests.support.columnar.damage import with_another_value
from iceberg_maint_tests.support.spark.equality.maintainer import Maintainer, policy_of
from iceberg_maint_tests.support.spark.equality.reference import Twin

pytestmark = [pytest.mark.spark, pytest.mark.drawn(1)]


def joined(way: Way, twin: Twin) -> bool:
    """Cleans the twin by the strategy `columnar`. Returns whether the join found the rows: only it measures its memory."""
    policy = policy_of(way.route, strategy=RewriteStrategy.COLUMNAR)
    outcomes = way.maintainer.heal(twin, policy)
    assert twin.applied_equality_deletes() == set()
    return any(b.memory for o in outcomes for b in o.batches)


def keyed(way: Way, **properties: str) -> Twin:
    twin = way.create(partitioned_by="s", **properties)
    twin.append({"k": 1, "s": "a"}, {"k": 2, "s": "a"}, {"k": 1, "s": "b"}, {"k": 1, "s": None})
    twin.delete({"k": 1, "s": "a"}, partition=("a",))
    twin.delete({"k": 1, "s": None}, partition=(None,))
    return twin


@pytest.mark.variant
def test_keys_that_do_not_fit_a_task_are_left_to_the_join(
    maintainer: Maintainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = Way(maintainer, 2, Route.REWRITE, RewriteStrategy.COLUMNAR)
    twin = keyed(way)
    monkeypatch.setattr(key_positions, "task_memory_bytes", lambda _: 1)
    assert joined(way, twin)
    assert twin.tags() == [2, 3]


def test_keys_with_a_partition_value_are_compared_by_arrow(way: Way) -> None:
    twin = keyed(way)
    assert not joined(way, twin)
    assert twin.tags() == [2, 3]


@pytest.mark.variant
def test_files_that_are_not_parquet_are_left_to_the_join(maintainer: Maintainer) -> None:
    way = Way(maintainer, 3, Route.CONVERT, RewriteStrategy.COLUMNAR)
    twin = way.create(**{"write.format.default": "avro"})
    twin.append({"k": 1}, {"k": 2})
    twin.delete({"k": 1})
    assert all(path.endswith(".avro") for path in twin.data_files())
    assert joined(way, twin)
    assert twin.tags() == [2]


@pytest.mark.variant
def test_rows_that_positions_delete_already_are_marked_once(maintainer: Maintainer, version: int) -> None:
    way = Way(maintainer, version, Route.CONVERT, RewriteStrategy.COLUMNAR)
    twin = way.create()
    twin.append({"k": 1}, {"k": 1}, {"k": 2})
    twin.delete_rows(1)
    twin.delete({"k": 1})
    assert not joined(way, twin)
    assert twin.tags() == [3]
    twin.delete({"k": 2})
    twin.append({"k": 2})
    assert not joined(way, twin)
    assert twin.tags() == [4]


def test_marks_of_a_columnar_rewrite_are_in_no_file(
    maintainer: Maintainer, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that positions delete already stay deleted."""

    def refuse(*_: object) -> None:
        raise AssertionError("a deletion vector was written")

    way = Way(maintainer, version, Route.REWRITE, RewriteStrategy.COLUMNAR)
    twin = way.create()
    twin.append({"k": 1}, {"k": 1}, {"k": 2}, {"k": 3})
    twin.delete_rows(1)
    twin.append({"k": 1}, {"k": 4})
    twin.delete({"k": 1})
    twin.append({"k": 1})
    with monkeypatch.context() as patch:
        patch.setattr(positions, "write_deletion_vectors", refuse)
        assert not joined(way, twin)
    assert twin.tags() == [3, 4, 6, 7]


def test_marks_that_a_columnar_task_does_not_apply_make_the_proof_unequal(
    maintainer: Maintainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = Way(maintainer, 2, Route.REWRITE, RewriteStrategy.COLUMNAR)
    twin = way.create()
    twin.append({"k": 1}, {"k": 2})
    twin.delete({"k": 1})
    monkeypatch.setattr(tasks, "b64encode", lambda _: b"")
    outcomes = maintainer.maintain(twin, policy_of(way.route, strategy=RewriteStrategy.COLUMNAR))
    details = [b.message for o in outcomes for b in o.batches]
    assert details
    assert "1 rows are deleted in 1 files, 0 were left out" in details[0]
    assert twin.tags() == [2]


@pytest.mark.parametrize("route", [Route.REWRITE, Route.CONVERT])
def test_damaged_equality_delete_file_is_refused_by_name(maintainer: Maintainer, route: Route) -> None:
    way = Way(maintainer, 2, route, RewriteStrategy.COLUMNAR)
    twin = way.create(**{"write.parquet.compression-codec": "uncompressed"})
    twin.append({"k": 1}, {"k": 9})
    twin.delete({"k": 1})
    [path] = (p.removeprefix("file:") for p in twin.live_equality_deletes())
    file = Path(path)
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    with_another_value(path, 0)
    policy = policy_of(way.route, strategy=RewriteStrategy.COLUMNAR)
    outcomes = way.maintainer.maintain(twin, policy)
    failed = [b.message for o in outcomes for b in o.batches]
    assert ["ICM-101 " in m and path in m and "CRC" in m for m in failed] == [True]
    assert {p.removeprefix("file:") for p in twin.live_equality_deletes()} == {path}
