"""Scan tasks: the deletes that apply to a file, whatever else the metadata of its delete files state."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.engines.spark.scan.scan import scan, with_all_equality_deletes
from iceberg_maint_tests.support.spark.workshop import Workshop, workshop_of

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def workshop(spark: SparkSession, lake_dir: Path) -> Workshop:
    return workshop_of(spark, lake_dir)


def test_delete_with_statistics_of_other_columns_than_its_keys_applies_in_a_pruned_scan(
    workshop: Workshop,
) -> None:
    """As a CDC writer leaves them: whole rows, of which one column is the key."""
    name, writers, iceberg = workshop.new_name("scan"), workshop.writers, workshop.bridge.iceberg
    table = writers.create(name, "id int, p string")
    writers.append(table, [{"id": 1, "p": "new"}])
    writers.add_deletes(table, writers.equality_deletes(table, [{"id": 1, "p": "old"}], by=["id"]))
    snapshot_id = int(table.currentSnapshot().snapshotId())
    pruning = iceberg.expressions.Expressions.equal("p", "new")
    [task] = workshop.bridge.iterate(scan(workshop.bridge, table, snapshot_id, pruning=pruning))
    assert [int(i) for d in workshop.bridge.iterate(task.deletes()) for i in d.equalityFieldIds()] == [1]


def test_delete_with_bounds_that_share_no_key_with_the_data_file_applies(workshop: Workshop) -> None:
    name, writers, bridge = workshop.new_name("scan"), workshop.writers, workshop.bridge
    table = writers.create(name, "i int, l bigint, s string, b binary, d decimal(9, 2), o boolean, n int")
    row = {"i": 1, "l": 1, "s": "a", "b": "00", "d": "1.00", "o": False}
    data = writers.append(table, [row])
    keys = {"i": 9, "l": 9, "s": "z", "b": "FF", "d": "9.00", "o": True, "n": 9}
    deletes = [writers.equality_deletes(table, [{column: value}]) for column, value in keys.items()]
    delta = table.newRowDelta()
    for file in deletes:
        delta.addDeletes(file)
    delta.commit()
    # Deletes of the same commit as the file do not apply to it.
    later = table.newRowDelta().addRows(writers.data(table, [{**row, "i": 2}]))
    later.addDeletes(writers.equality_deletes(table, [{"i": 7}])).commit()
    [stock] = [t for t in writers.tasks(table) if t.file().location() == data.location()]
    snapshot_id = int(table.currentSnapshot().snapshotId())
    by_path = {str(t.file().location()): t for t in bridge.iterate(scan(bridge, table, snapshot_id))}
    assert stock.deletes().size() == 0
    assert [t.deletes().size() for t in by_path.values() if t.file().location() != data.location()] == [0]
    applied = [str(d.location()) for d in bridge.iterate(by_path[str(data.location())].deletes())]
    assert len(applied) == len(set(applied)) == 8
    assert {str(d.location()) for d in deletes} < set(applied)


@pytest.mark.parametrize(("has_deletes", "has_tasks"), [(False, True), (True, False), (False, False)])
def test_tasks_are_not_looked_at_without_tasks_or_equality_deletes(
    has_deletes: bool, has_tasks: bool
) -> None:
    deletes, tasks = (SimpleNamespace(isEmpty=lambda has=has: not has) for has in (has_deletes, has_tasks))
    bridge: Any = SimpleNamespace(
        once=lambda _: SimpleNamespace(equality_deletes=lambda _table, _snapshot_id: deletes)
    )
    assert with_all_equality_deletes(bridge, None, 1, tasks) is tasks
