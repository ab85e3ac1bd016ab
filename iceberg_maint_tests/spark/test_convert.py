"""The conversion on real tables: rows stay, equality deletes go, positions are proved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.ids import Operation
from iceberg_maint.core.outcome import CommitStatus
from iceberg_maint.core.plan import Batch
from iceberg_maint.core.policy import Policy
from iceberg_maint.core.state import FileKind
from iceberg_maint.ports import Written
from iceberg_maint_tests.spark.workshop import FULL, Workshop, workshop_of

pytestmark = pytest.mark.spark

CONVERT = Operation.CONVERT_EQUALITY_DELETES
REWRITE = Operation.REWRITE_DATA_FILES


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    made = workshop_of(spark, lake_dir)
    made.sql("create namespace if not exists lake.convert")
    return made


def rows_of(ids: Sequence[int], value: str | None = "a") -> list[dict[str, Any]]:
    return [{"id": i, "v": value} for i in ids]


def keys(*ids: int | None) -> list[dict[str, Any]]:
    return [{"id": i} for i in ids]


def upserted(shop: Workshop, version: int) -> str:
    """Two files under equality deletes and position deletes, and a younger one that no delete reaches."""
    name = shop.new_name("convert")
    writers, table = (
        shop.writers,
        shop.writers.create(name, version=version, properties={"write.delete.mode": "merge-on-read"}),
    )
    writers.append(table, rows_of(range(10)))
    writers.append(table, rows_of(range(10, 20)))
    shop.sql(f"delete from {name} where id in (1, 2)")
    writers.delete_where(writers.load(name), keys(2, 3, 11))
    writers.append(writers.load(name), rows_of([3, 11], "b"))
    return name


def clean(shop: Workshop, name: str, operation: Operation, policy: Policy = FULL) -> tuple[Batch, Written]:
    before = shop.writers.rows(name)
    batch = shop.cleaning(name, operation)
    written = shop.engine.write(batch, policy)
    assert written.proof.equal, written.proof.detail
    result = shop.commit(batch, written)
    assert result.status is CommitStatus.COMMITTED, result.message
    assert shop.writers.rows(name) == before
    return batch, written


def contents(shop: Workshop, name: str) -> Counter[str]:
    table = shop.writers.load(name)
    found = {
        (str(d.location()), d.contentOffset()): str(d.content().toString())
        for task in shop.writers.tasks(table)
        for d in shop.bridge.iterate(task.deletes())
    }
    return Counter(found.values())


@pytest.mark.parametrize("version", [2, 3])
def test_convert_marks_positions_drops_equality_deletes_and_keeps_data_files(
    shop: Workshop, version: int
) -> None:
    name = upserted(shop, version)
    lineage = shop.lineage(name) if version == 3 else None
    files = {str(f.location()) for f in shop.writers.files(shop.writers.load(name))}
    batch, written = clean(shop, name, CONVERT)
    proof = written.proof
    assert (proof.input_records, proof.removed_records) == (20, 2)
    assert {str(f.location()) for f in shop.writers.files(shop.writers.load(name))} == files
    assert "EQUALITY_DELETES" not in contents(shop, name)
    kinds = {f.kind for f in written.files}
    assert kinds == {FileKind.POSITION_DELETES if version == 2 else FileKind.DELETION_VECTOR}
    assert {f.referenced_data_file for f in written.files} == batch.paths()
    # On v2 next to the older position deletes, on v3 in the place of the older vector.
    assert proof.output_records == (2 if version == 2 else 4)
    assert contents(shop, name) == ({"POSITION_DELETES": 3} if version == 2 else {"POSITION_DELETES": 2})
    assert written.memory is not None
    assert written.memory.estimated_bytes > 0
    assert written.memory.peak_bytes > 0
    if lineage is not None:
        assert shop.lineage(name) == lineage


@pytest.mark.parametrize("version", [2, 3])
def test_anti_join_rewrites_without_the_deleted_rows(shop: Workshop, version: int) -> None:
    name = upserted(shop, version)
    lineage = shop.lineage(name) if version == 3 else None
    _, written = clean(shop, name, REWRITE)
    proof = written.proof
    assert (proof.input_records, proof.output_records, proof.removed_records) == (20, 16, 4)
    assert contents(shop, name) == {}
    assert written.scratch_bytes > 0
    assert {f.kind for f in written.files} == {FileKind.DATA}
    if lineage is not None:
        assert shop.lineage(name) == lineage
