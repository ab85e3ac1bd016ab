"""Tables under equality deletes, and their cleaning step by step with the rows held by another reader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.outcomes.outcome import CommitStatus
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.engines.spark.engine import SparkEngine
from iceberg_maint.ports.engine import Written
from iceberg_maint_tests.support.spark.workshop import FULL, Workshop

CONVERT = Operation.CONVERT_EQUALITY_DELETES
REWRITE = Operation.REWRITE_DATA_FILES


def rows_of(ids: Iterable[int], value: str | None = "a") -> list[dict[str, Any]]:
    return [{"id": i, "v": value} for i in ids]


def keys(*ids: int | None) -> list[dict[str, Any]]:
    return [{"id": i} for i in ids]


def upserted(shop: Workshop, version: int) -> str:
    """Two files of ten rows under equality deletes, the first with a deletion vector or position
    deletes as well, and a younger file that no delete reaches. 4 rows are deleted, 1 of them twice."""
    name = shop.new_name("cleaning")
    merge_on_read = {"write.delete.mode": "merge-on-read"}
    writers, table = shop.writers, shop.writers.create(name, version=version, properties=merge_on_read)
    writers.append(table, rows_of(range(10)))
    writers.append(table, rows_of(range(10, 20)))
    shop.sql(f"delete from {name} where id in (1, 2)")
    writers.delete_where(writers.load(name), keys(2, 3, 11))
    writers.append(writers.load(name), rows_of([3, 11], "b"))
    return name


def clean(
    shop: Workshop,
    name: str,
    operation: Operation,
    *,
    policy: Policy = FULL,
    committer: SparkEngine | None = None,
    drop: bool = True,
) -> tuple[Batch, Written]:
    """Writes, proves and commits; the rows must stay."""
    before = shop.writers.rows(name)
    batch = shop.cleaning(name, operation, drop=drop)
    written = shop.engine.write(batch, policy)
    assert written.proof.equal, written.proof.detail
    result = shop.commit(batch, written, engine=committer)
    assert result.status is CommitStatus.COMMITTED, result.message
    assert shop.writers.rows(name) == before
    return batch, written


def other_engine(shop: Workshop) -> SparkEngine:
    """An engine that has written nothing, as that of a process after a crash."""
    return Workshop(shop.spark, shop.catalog).engine


def deletes_of(shop: Workshop, name: str) -> dict[str, Counter[str]]:
    """By data file: how many deletes of which content a scan applies to it; none, no entry."""
    found: dict[str, Counter[str]] = {}
    for task in shop.writers.tasks(shop.writers.load(name)):
        deletes = [str(d.content().toString()) for d in shop.bridge.iterate(task.deletes())]
        if deletes:
            found[str(task.file().location())] = Counter(deletes)
    return found


def equality_deletes(shop: Workshop, name: str) -> int:
    """Equality delete files of the current snapshot, needed or not."""
    frame = shop.spark.table(f"{name}.delete_files")
    return int(frame.where("content = 2").count())
