"""The conversion on real tables: rows stay, equality deletes go, positions are proved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from iceberg_maint.core.model.table_state import FileKind
from iceberg_maint.core.outcomes.outcome import CommitStatus
from iceberg_maint.core.planning.batch_memory import MemoryNeed
from iceberg_maint.core.policy.data import EqualityDeletesPolicy, Policy
from iceberg_maint.engines.spark import engine, write_deletes
from iceberg_maint.engines.spark.deletes import convert, deleted_rows
from iceberg_maint.engines.spark.scan import positions
from iceberg_maint.errors import RefusedError, StaleBatchError
from iceberg_maint.ports.engine import MemoryExceededError
from iceberg_maint_tests.support.batches import with_work
from iceberg_maint_tests.support.spark.equality_deletes import (
    CONVERT,
    clean,
    deletes_of,
    equality_deletes,
    keys,
    other_engine,
    rows_of,
    upserted,
)
from iceberg_maint_tests.support.spark.workshop import FULL, Workshop, workshop_of

pytestmark = [pytest.mark.spark, pytest.mark.drawn(1)]


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    made = workshop_of(spark, lake_dir)
    made.sql("create namespace if not exists lake.cleaning")
    return made


@pytest.mark.parametrize("version", [2, 3])
def test_convert_marks_positions_drops_equality_deletes_and_keeps_data_files(
    shop: Workshop, version: int
) -> None:
    name = upserted(shop, version)
    lineage = shop.lineage(name) if version == 3 else None
    files = {str(f.location()) for f in shop.writers.files(shop.writers.load(name))}
    batch, written = clean(shop, name, CONVERT)
    assert {str(f.location()) for f in shop.writers.files(shop.writers.load(name))} == files
    assert equality_deletes(shop, name) == 0
    kind = FileKind.POSITION_DELETES if version == 2 else FileKind.DELETION_VECTOR
    assert {(f.kind, f.referenced_data_file) for f in written.files} == {(kind, p) for p in batch.paths()}
    # In the place of the older position deletes and of the older vector.
    proof = written.proof
    assert (proof.input_records, proof.removed_records, proof.output_records) == (20, 2, 4)
    assert [c["POSITION_DELETES"] for c in deletes_of(shop, name).values()] == [1, 1]
    if lineage is not None:
        assert shop.lineage(name) == lineage


def test_position_deletes_of_an_unpartitioned_table_have_no_empty_segment_in_their_path(
    shop: Workshop,
) -> None:
    """Hadoop's paths hide such a segment; a FileIO of an object store does not, nor does this one in memory. On S3
    Arrow, and with it PyIceberg, refuses the key."""
    bridge = shop.writers.bridge
    catalog = bridge.iceberg.inmemory.InMemoryCatalog()
    catalog.initialize("memory", bridge.map([]))
    namespace = bridge.iceberg.catalog.Namespace.of(bridge.array(bridge.jvm.java.lang.String, ["db"]))
    catalog.createNamespace(namespace)
    schema = shop.writers.create(shop.new_name("cleaning")).schema()
    table = catalog.createTable(bridge.iceberg.catalog.TableIdentifier.of(namespace, "t"), schema)
    folder = f"{table.location()}/data"
    file = bridge.iceberg.DataFiles.builder(table.spec()).withPath(f"{folder}/1.parquet")
    file = file.withFileSizeInBytes(10).withRecordCount(5).build()
    path = str(file.location())
    (written,) = positions.write_position_deletes(bridge, table, {path: BitMap64([1])}, {path: file})
    assert str(written.location()).rpartition("/")[0] == folder


@pytest.mark.variant
def test_convert_says_what_memory_was_expected_and_taken(shop: Workshop) -> None:
    batch = shop.cleaning(upserted(shop, 2), CONVERT)
    memory = shop.engine.write(batch, FULL).memory
    assert memory is not None
    assert (memory.passes, memory.partitions) == (1, 1)
    assert min(memory.estimated_bytes, memory.peak_bytes) > 0


@pytest.mark.variant
@pytest.mark.parametrize("version", [2, 3])
def test_convert_of_another_process_is_committed_from_its_json(shop: Workshop, version: int) -> None:
    name = upserted(shop, version)
    clean(shop, name, CONVERT, committer=other_engine(shop))
    assert equality_deletes(shop, name) == 0
    assert max(c.total() for c in deletes_of(shop, name).values()) == 1


def test_convert_of_a_table_that_became_v3_takes_older_position_deletes_into_its_vectors(
    shop: Workshop,
) -> None:
    name = shop.new_name("cleaning")
    table = shop.writers.create(name, version=2)
    files = [shop.writers.append(table, rows_of(range(n, n + 5))) for n in (0, 5)]
    # One position delete file for both: scoped to the partition, it stays.
    shop.writers.delete_at(table, {str(f.location()): [0] for f in files})
    shop.sql(f"alter table {name} set tblproperties ('format-version'='3')")
    shop.writers.delete_where(shop.writers.load(name), keys(0, 1, 6))
    _, written = clean(shop, name, CONVERT)
    assert [f.kind for f in written.files] == [FileKind.DELETION_VECTOR] * 2
    assert (written.proof.removed_records, written.proof.output_records) == (2, 4)
    assert len(shop.rows(name)) == 6


@pytest.mark.variant
def test_convert_of_an_evolved_table_keeps_every_delete_file_with_its_data_file(shop: Workshop) -> None:
    name = shop.new_name("cleaning")
    table = shop.writers.create(name, version=2)
    unpartitioned = table.spec()
    shop.writers.append(table, rows_of(range(4)))
    shop.sql(f"alter table {name} add partition field v")
    table = shop.writers.load(name)
    for value in ("a", None):
        shop.writers.append(table, rows_of(range(4), value), table.spec(), [value])
    # Of the unpartitioned spec: it applies everywhere. Of a partition: there only.
    shop.writers.delete_where(table, keys(0), unpartitioned)
    shop.writers.delete_where(table, keys(1), table.spec(), [None])
    batch, written = clean(shop, name, CONVERT)
    specs = {f.path: g.spec_id for g in batch.groups for f in g.files}
    assert {f.referenced_data_file: f.spec_id for f in written.files} == specs
    assert sorted(f.record_count for f in written.files) == [1, 1, 2]
    assert [batch.groups[f.group].spec_id for f in written.files] == [f.spec_id for f in written.files]


def test_convert_of_deletes_that_apply_to_no_file_reads_nothing_and_drops_them(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = shop.new_name("cleaning")
    table = shop.writers.create(name)
    shop.writers.delete_where(table, keys(1))
    shop.writers.append(table, rows_of([1]))
    monkeypatch.setattr(positions, "gather", None)
    batch, written = clean(shop, name, CONVERT)
    assert (batch.groups, written.files, written.memory) == ((), (), None)
    assert equality_deletes(shop, name) == 0


@pytest.mark.variant
def test_convert_of_deletes_that_match_no_row_writes_no_file_and_drops_them(shop: Workshop) -> None:
    name = shop.new_name("cleaning")
    table = shop.writers.create(name)
    shop.writers.append(table, rows_of([1, 3]))
    shop.writers.delete_where(table, keys(2))
    _, written = clean(shop, name, CONVERT)
    assert (written.files, written.proof.input_records, written.proof.removed_records) == ((), 2, 0)
    assert equality_deletes(shop, name) == 0


@pytest.mark.variant
def test_convert_keeps_deletes_that_the_plan_does_not_drop(shop: Workshop) -> None:
    name = upserted(shop, 2)
    clean(shop, name, CONVERT, drop=False)
    assert equality_deletes(shop, name) == 1


@pytest.mark.parametrize("version", [2, 3])
def test_convert_position_that_is_written_wrong_makes_the_proof_unequal(
    shop: Workshop, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "write_position_deletes" if version == 2 else "write_deletion_vectors"
    write = getattr(positions, name)

    def next_to_it(bridge: Any, table: Any, wanted: positions.Positions, files: Any) -> Any:
        return write(bridge, table, {p: BitMap64(n + 1 for n in w) for p, w in wanted.items()}, files)

    monkeypatch.setattr(positions, name, next_to_it)
    batch = shop.cleaning(upserted(shop, version), CONVERT)
    proof = shop.engine.write(batch, FULL).proof
    assert not proof.equal
    assert "were to be deleted" in proof.detail
    assert batch.batch_id not in shop.engine._batch_files


@pytest.mark.parametrize("version", [2, 3])
def test_convert_older_position_that_is_lost_makes_the_proof_unequal(
    shop: Workshop, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(parts: Iterable[positions.Positions]) -> dict[str, BitMap64]:
        return positions.union({p: w for p, w in part.items() if 2 not in w} for part in parts)

    monkeypatch.setattr(convert, "positions", SimpleNamespace(**{**vars(positions), "union": short}))
    proof = shop.engine.write(shop.cleaning(upserted(shop, version), CONVERT), FULL).proof
    assert (proof.equal, proof.detail) == (
        False,
        "2 positions are new, 2 were deleted before, 2 are written",
    )


def test_convert_older_vector_that_is_read_in_part_is_refused(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deleted_rows, "read_back", lambda *_: {})
    with pytest.raises(RefusedError, match="hold 2 positions, 0 were read") as refusal:
        shop.engine.write(shop.cleaning(upserted(shop, 3), CONVERT), FULL)
    assert refusal.value.code == "ICM-101"


# refusals


def test_convert_that_needs_more_memory_than_declared_is_refused_before_anything_is_read(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = with_work(shop.cleaning(upserted(shop, 2), CONVERT), memory=MemoryNeed(10**12, 64, 10**9))
    monkeypatch.setattr(engine, "plan_tasks", None)
    policy = Policy(equality_deletes=EqualityDeletesPolicy(memory=8 << 20))
    with pytest.raises(RefusedError, match=r"needs \d+ bytes of memory, 8388608 are declared") as refusal:
        shop.engine.write(batch, policy)
    assert refusal.value.code == "ICM-124"


def test_convert_that_the_driver_has_no_memory_for_is_refused_with_both_numbers(shop: Workshop) -> None:
    batch = with_work(shop.cleaning(upserted(shop, 2), CONVERT), memory=MemoryNeed(2, 8, 1 << 40))
    with pytest.raises(
        RefusedError, match=r"needs 27\d{10} bytes of driver memory, \d+ are declared"
    ) as refusal:
        shop.engine.write(batch, FULL)
    assert (refusal.value.code, "raise spark.driver.memory" in refusal.value.fix) == ("ICM-124", True)


def test_convert_that_runs_out_of_memory_reports_how_far_it_came(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Spark ends it: a task that gets no memory fails, and with it the job."""
    batch = shop.cleaning(upserted(shop, 2), CONVERT)
    none_left = "raise_error(cast('java.lang.OutOfMemoryError' as string))"

    def run_out(bridge: Any, _work: Any) -> None:
        bridge.spark.sql(f"select {none_left}").collect()

    monkeypatch.setattr(write_deletes, "convert", run_out)
    with pytest.raises(MemoryExceededError, match=r"ran out of memory .*OutOfMemoryError") as ended:
        shop.engine.write(batch, FULL)
    assert ended.value.use.exceeded
    assert ended.value.use.estimated_bytes > 0


@pytest.mark.parametrize(
    ("columns", "key", "change", "fault"),
    [
        ("k float", "k", None, "column k of type float"),
        ("k int", "k", "drop column k", "column k, which was dropped"),
        ("k struct<x: double>", "k.x", None, "column k.x of type double"),
        ("k array<int>", "k.element", None, "column k.element, which is inside a list"),
    ],
)
def test_convert_by_a_key_that_cannot_be_compared_is_refused(
    shop: Workshop, columns: str, key: str, change: str | None, fault: str
) -> None:
    name = shop.new_name("cleaning")
    table = shop.writers.create(name, f"id int, v string, {columns}")
    field_id = int(table.schema().findField(key).fieldId())
    shop.writers.append(table, rows_of([1, 2]))
    shop.writers.delete_where(table, keys(1))
    if change:
        shop.sql(f"alter table {name} {change}")
    batch = shop.cleaning(name, CONVERT)
    delete = batch.equality_deletes[0]
    batch = with_work(batch, equality_deletes=(replace(delete, equality_ids=(1, field_id)),))
    with pytest.raises(RefusedError) as refusal:
        shop.engine.write(batch, FULL)
    assert refusal.value.code == "ICM-119"
    assert refusal.value.message == f"{name}: {delete.path} deletes rows by {fault}"


def test_convert_of_fewer_deletes_than_iceberg_applies_is_refused(shop: Workshop) -> None:
    name = upserted(shop, 2)
    shop.writers.delete_where(shop.writers.load(name), keys(4))
    batch = shop.cleaning(name, CONVERT)
    with pytest.raises(RefusedError, match="1 equality delete files that were not planned") as refusal:
        shop.engine.write(with_work(batch, equality_deletes=batch.equality_deletes[:1]), FULL)
    assert refusal.value.code == "ICM-101"


def test_convert_of_a_delete_that_is_not_in_the_snapshot_is_stale(shop: Workshop) -> None:
    batch = shop.cleaning(upserted(shop, 2), CONVERT)
    gone = replace(batch.equality_deletes[0], path="file:/nowhere/gone.parquet")
    with pytest.raises(StaleBatchError, match=r"gone\.parquet"):
        shop.engine.write(with_work(batch, equality_deletes=(*batch.equality_deletes, gone)), FULL)


@pytest.mark.variant
def test_convert_several_batches_are_written_before_one_is_committed(shop: Workshop) -> None:
    names = [upserted(shop, 2), upserted(shop, 3)]
    batches = [shop.cleaning(name, CONVERT) for name in names]
    written = [shop.engine.write(batch, FULL) for batch in batches]
    for batch, one in zip(batches, written, strict=True):
        assert shop.commit(batch, one).status is CommitStatus.COMMITTED
    assert [equality_deletes(shop, name) for name in names] == [0, 0]
