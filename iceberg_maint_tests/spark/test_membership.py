"""Membership against the rows that Iceberg's own generic reader drops."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.memory import Preflight
from iceberg_maint.core.plan import Batch
from iceberg_maint.spark import native
from iceberg_maint.spark.bridge import Bridge
from iceberg_maint.spark.membership import marked_rows
from iceberg_maint_tests.spark.writers import Writers

pytestmark = pytest.mark.spark

BROADCAST = Preflight(0, partitions=1, passes=1, broadcast=True, scratch_bytes=0)
SHUFFLED = Preflight(0, partitions=3, passes=1, broadcast=False, scratch_bytes=0)
IN_PASSES = Preflight(0, partitions=2, passes=3, broadcast=False, scratch_bytes=0)

_names = itertools.count()


@pytest.fixture(scope="module")
def writers(spark: SparkSession) -> Writers:
    return Writers(Bridge(spark))


def new_name() -> str:
    return f"lake.membership.t{next(_names)}"


def batch_of(table: Any, name: str) -> Batch:
    """A batch as far as membership looks at it."""
    return Batch(
        "b",
        name,
        str(table.uuid()),
        "convert_equality_deletes",
        "convert",
        2,
        int(table.currentSnapshot().snapshotId()),
        int(table.currentSnapshot().sequenceNumber()),
        int(table.schema().schemaId()),
        (),
        1 << 20,
    )


def marked(writers: Writers, name: str, preflight: Preflight = SHUFFLED) -> set[tuple[str, int, bool]]:
    bridge = writers.bridge
    java = writers.load(name)
    tasks, deletes = [], {}
    for task in writers.tasks(java):
        equality = [d for d in bridge.iterate(task.deletes()) if d.content().toString() == "EQUALITY_DELETES"]
        if equality:
            tasks.append(task)
            deletes |= {d.location(): d for d in equality}
    batch = batch_of(java, name)
    table = native.describe(bridge, java, name, batch.snapshot_id)
    with marked_rows(bridge, table, batch, bridge.list(tasks), list(deletes.values()), preflight) as frame:
        assert frame.dtypes == [("_file", "string"), ("_pos", "bigint"), ("_already", "boolean")]
        found = [tuple(row) for row in frame.collect()]
    assert len(found) == len(set(found))
    return set(found)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    "preflight", [BROADCAST, SHUFFLED, IN_PASSES], ids=["broadcast", "shuffled", "passes"]
)
def test_keys_deleted_once_and_again_are_marked_below_their_latest_delete(
    writers: Writers, version: int, preflight: Preflight
) -> None:
    name = new_name()
    table = writers.create(name, version=version)
    first = writers.append(table, [{"id": i, "v": "a"} for i in range(6)])
    writers.delete_where(table, [{"id": 1}, {"id": 2}])
    second = writers.append(table, [{"id": i, "v": "b"} for i in range(3)])
    writers.delete_where(table, [{"id": 2}, {"id": 5}])
    assert marked(writers, name, preflight) == {
        (first.location(), 1, False),
        (first.location(), 2, False),
        (first.location(), 5, False),
        (second.location(), 2, False),
    }
