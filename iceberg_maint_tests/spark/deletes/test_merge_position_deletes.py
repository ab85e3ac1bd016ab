"""Position deletes merged on real tables: v2, v3, upgraded and evolved."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import CommitStatus, OutcomeStatus
from iceberg_maint.core.outcomes.verification import Compared, StoredProof, VerificationStatus, find_commit
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import (
    Policy,
    RewriteDataFilesPolicy,
)
from iceberg_maint.engines.spark.health.measure import SparkHealthSource
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.scan import positions
from iceberg_maint.engines.spark.verify import SparkVerifier
from iceberg_maint.loop.maintain import maintain
from iceberg_maint.loop.request import Request
from iceberg_maint.ports.engine import Written
from iceberg_maint.wiring.adapters import SystemClock
from iceberg_maint_tests.support.context import context_with
from iceberg_maint_tests.support.fakes.ledger import memory_ledger
from iceberg_maint_tests.support.spark.equality_deletes import deletes_of, other_engine, rows_of
from iceberg_maint_tests.support.spark.position_deletes import (
    POSITIONS,
    mark,
    paths,
    planned,
    swap,
    table,
)
from iceberg_maint_tests.support.spark.workshop import FULL, Workshop, workshop_of

pytestmark = [pytest.mark.spark, pytest.mark.drawn(1)]


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    return workshop_of(spark, lake_dir)


def health(shop: Workshop, name: str, partition: str = "__all__") -> PartitionHealth:
    state = shop.catalog.pin(TableId.parse(name))
    return shop.catalog.measure(state, RewriteDataFilesPolicy()).partitions[partition]


def health_by_spark(shop: Workshop, name: str) -> PartitionHealth:
    state = shop.catalog.pin(TableId.parse(name))
    return (
        SparkHealthSource(Bridge(shop.spark)).measure(state, RewriteDataFilesPolicy()).partitions["__all__"]
    )


def merge(
    shop: Workshop, name: str, *keys: str, force: bool = True, policy: Policy = FULL
) -> tuple[Batch, Written]:
    """Writes, proves and commits; the rows must stay, for another reader than the one that proved it."""
    before = shop.writers.rows(name)
    batch = planned(shop, name, *keys, force=force)
    written = shop.engine.write(batch, policy)
    assert written.proof.equal, written.proof.detail
    result = shop.commit(batch, written)
    assert result.status is CommitStatus.COMMITTED, result.message
    assert shop.writers.rows(name) == before
    return batch, written


def verify(shop: Workshop, name: str) -> tuple[VerificationStatus, StoredProof | None, Compared | None]:
    state = shop.catalog.pin(TableId.parse(name))
    assert state.snapshot is not None
    commit = find_commit(state, state.snapshot.snapshot_id)
    found = SparkVerifier(lambda: shop.spark).verify(commit)  # type: ignore[arg-type]
    return found.status, found.stored, found.compared


PROVED = (VerificationStatus.ATTESTED, StoredProof.EQUAL, Compared.DELETED_POSITIONS)


@pytest.mark.variant
def test_many_position_deletes_become_one_per_data_file(shop: Workshop) -> None:
    name = table(shop, range(10), range(10, 20), range(20, 30))
    a, b, c = paths(shop, name)
    mark(shop, name, {a: [0], b: [1]})
    mark(shop, name, {a: [0, 3], "gone.parquet": [7]})
    mark(shop, name, {b: [2]})
    mark(shop, name, {b: [5]})
    assert health(shop, name).mergeable_delete_files == 3
    assert health_by_spark(shop, name) == health(shop, name)
    _, written = merge(shop, name)
    assert deletes_of(shop, name) == {a: Counter({POSITIONS: 1}), b: Counter({POSITIONS: 1})}
    assert {f.referenced_data_file: f.record_count for f in written.files} == {a: 2, b: 3}
    after = health(shop, name)
    assert (after.position_delete_files, after.mergeable_delete_files, after.dangling_delete_files) == (
        2,
        0,
        0,
    )
    assert verify(shop, name) == PROVED
    numbers = {
        str(d.referencedDataFile()): int(d.dataSequenceNumber())
        for task in shop.writers.tasks(shop.writers.load(name))
        for d in shop.bridge.iterate(task.deletes())
    }
    assert numbers == {a: 5, b: 7}, "the highest of those whose place each takes"
    assert c not in deletes_of(shop, name)


@pytest.mark.variant
def test_partition_scoped_delete_whose_files_were_rewritten_goes_once_it_is_read(shop: Workshop) -> None:
    name = table(shop, range(10), range(10, 20))
    a, b = paths(shop, name)
    mark(shop, name, {a: [0], b: [1]})
    batch = shop.batch(name)
    assert shop.commit(batch, shop.engine.write(batch, FULL)).status is CommitStatus.COMMITTED
    before = health(shop, name)
    assert (before.position_delete_files, before.dangling_delete_files, before.delete_ratio) == (1, 1, 0.0)
    assert health_by_spark(shop, name) == before
    _, written = merge(shop, name, force=False)
    assert written.files == ()
    assert health(shop, name).position_delete_files == 0
    assert verify(shop, name)[0] is VerificationStatus.ATTESTED


@pytest.mark.variant
def test_partition_scoped_delete_that_marks_an_older_file_stays_as_that_files(shop: Workshop) -> None:
    name = table(shop, range(10), range(10, 20))
    a, b = paths(shop, name)
    mark(shop, name, {a: [0], b: [1]})
    java = shop.writers.load(name)
    [first, _] = shop.writers.files(java)
    replacement = shop.writers.data(java, rows_of(range(1, 10)))
    swap(java, first, replacement)
    assert health(shop, name).dangling_delete_files == 0
    merge(shop, name)
    assert deletes_of(shop, name) == {b: Counter({POSITIONS: 1})}


@pytest.mark.variant
def test_position_deletes_of_an_upgraded_table_become_deletion_vectors(shop: Workshop) -> None:
    name = table(shop, range(10), range(10, 20), range(20, 30))
    a, b, c = paths(shop, name)
    mark(shop, name, {a: [0], b: [1], c: [2]})
    mark(shop, name, {a: [4]})
    shop.sql(
        f"alter table {name} set tblproperties ('format-version'='3', 'write.delete.mode'='merge-on-read')"
    )
    shop.sql(f"delete from {name} where id = 25")
    vectors = {path: found for path, found in deletes_of(shop, name).items() if path == c}
    _, written = merge(shop, name)
    assert {f.referenced_data_file: f.record_count for f in written.files} == {a: 2, b: 1}
    after = health(shop, name)
    assert (after.position_delete_files, after.deletion_vectors, after.dangling_delete_files) == (0, 3, 0)
    assert vectors == {c: Counter({POSITIONS: 1})}
    assert verify(shop, name) == PROVED


def test_dangling_deletion_vectors_go_and_those_beside_them_in_the_file_stay(shop: Workshop) -> None:
    name = table(shop, range(10), range(10, 20), version=3)
    a, b = paths(shop, name)
    java = shop.writers.load(name)
    marks = {p: positions.BitMap64([n]) for n, p in enumerate((a, b, "file:/gone-1", "file:/gone-2"))}
    data = {str(f.location()): f for f in shop.writers.files(java)}
    files = positions.write_deletion_vectors(
        shop.bridge, java, marks, {p: data.get(p, data[a]) for p in marks}
    )
    delta = java.newRowDelta()
    for file in files:
        delta.addDeletes(file)
    delta.commit()
    assert health(shop, name).dangling_delete_files == 2
    batch, written = merge(shop, name, force=False)
    assert (len(batch.position_deletes), written.files) == (2, ())
    assert deletes_of(shop, name) == {a: Counter({POSITIONS: 1}), b: Counter({POSITIONS: 1})}
    assert health(shop, name).dangling_delete_files == 0


def test_deletes_of_an_unpartitioned_spec_after_spec_evolution_bring_no_row_back(shop: Workshop) -> None:
    """Iceberg's own removal of dangling deletes joined specs and partitions and dropped the equality
    delete, which applies everywhere (apache/iceberg#15727)."""
    name = table(shop, range(10))
    [a] = paths(shop, name)
    mark(shop, name, {a: [0], "gone.parquet": [0]})
    java = shop.writers.load(name)
    unpartitioned = java.spec()
    java.updateSpec().addField("v").commit()
    java = shop.writers.load(name)
    [old] = shop.writers.files(java)
    moved = shop.writers.data(java, rows_of(range(1, 10)), java.spec(), ["a"])
    swap(java, old, moved)
    java = shop.writers.load(name)
    shop.writers.delete_where(java, [{"id": 5}], unpartitioned)
    assert shop.writers.rows(name) == [(i, "a") for i in (1, 2, 3, 4, 6, 7, 8, 9)]
    batch, _ = merge(shop, name)
    assert [d.void for d in batch.position_deletes] == [True]
    left = health(shop, name)
    assert (left.position_delete_files, left.equality_delete_files) == (0, 1)


@pytest.mark.variant
def test_deletes_of_two_partitions_are_merged_each_in_its_own(shop: Workshop) -> None:
    name = shop.new_name("merge")
    java = shop.writers.create(name, partitioned_by="v")
    for value in ("a", "a", "b"):
        shop.writers.append(java, rows_of(range(5), value), java.spec(), [value])
    a, a2, b = paths(shop, name)
    mark(shop, name, {a: [0], a2: [1]}, partition=["a"])
    mark(shop, name, {a: [2], a2: [1]}, partition=["a"])
    mark(shop, name, {b: [2]}, partition=["b"])
    mark(shop, name, {b: [3]}, partition=["b"])
    batch, written = merge(shop, name)
    assert batch.partitions == ("v=a", "v=b")
    assert {f.referenced_data_file: f.record_count for f in written.files} == {a: 2, a2: 1, b: 2}


@pytest.mark.variant
def test_delete_that_names_a_file_of_another_partition_marks_nothing_there(shop: Workshop) -> None:
    """No reader looks for a file's deletes in another partition (spec: Scan Planning)."""
    name = shop.new_name("merge")
    java = shop.writers.create(name, partitioned_by="v")
    for value in ("a", "b"):
        shop.writers.append(java, rows_of(range(5), value), java.spec(), [value])
    a, b = paths(shop, name)
    mark(shop, name, {a: [0], b: [4]}, partition=["a"])
    mark(shop, name, {a: [1], b: [0]}, partition=["b"])
    mark(shop, name, {b: [1]}, partition=["b"])
    _, written = merge(shop, name)
    assert {f.referenced_data_file: f.record_count for f in written.files} == {a: 1, b: 2}


@pytest.mark.variant
def test_commit_by_another_process_merges_what_was_written(shop: Workshop) -> None:
    name = table(shop, range(10), version=2)
    [a] = paths(shop, name)
    mark(shop, name, {a: [0]})
    mark(shop, name, {a: [1]})
    before = shop.writers.rows(name)
    batch = planned(shop, name)
    written = shop.engine.write(batch, FULL)
    assert shop.commit(batch, written, engine=other_engine(shop)).status is CommitStatus.COMMITTED
    assert shop.writers.rows(name) == before
    assert deletes_of(shop, name) == {a: Counter({POSITIONS: 1})}


@pytest.mark.variant
def test_table_of_void_deletes_is_healed_in_one_run_and_asks_for_no_other(shop: Workshop) -> None:
    """A rewrite leaves a delete that names several files live. It counted towards the delete ratio, so a
    rewrite that gained nothing was due again and again, until the partition was quarantined."""
    name = table(shop, range(10), range(10, 20))
    a, b = paths(shop, name)
    mark(shop, name, {a: range(8), b: [1]})
    before = shop.writers.rows(name)
    context = context_with(
        {"lake": shop.catalog},
        memory_ledger(),
        SystemClock(),
        lambda _table, _properties: FULL,
        lambda: shop.engine,
    )

    def run(number: int) -> list[tuple[OutcomeStatus, Reason]]:
        request = Request(f"run {number}")
        outcomes = maintain(TableId.parse(name), request, context)
        return [(o.outcome, o.reason) for o in outcomes]

    healthy = (OutcomeStatus.NO_OP, Reason.HEALTHY)
    assert run(1) == [
        healthy,
        (OutcomeStatus.IMPROVED, Reason.DELETE_RATIO),
        (OutcomeStatus.IMPROVED, Reason.POSITION_DELETES),
    ]
    assert run(2) == [healthy] * 3
    assert shop.writers.rows(name) == before
    assert health(shop, name).delete_files == 0
