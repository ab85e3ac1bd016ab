"""The native strategy on real tables: the rows stay, the deletes go, the proof holds and can fail."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from iceberg_maint.core.outcomes.outcome import CommitStatus
from iceberg_maint.core.policy.data import Policy, RewriteDataFilesPolicy
from iceberg_maint.engines.spark.jvm.conversion import LINEAGE
from iceberg_maint.engines.spark.rewrite import bin_pack
from iceberg_maint.engines.spark.scan.scan import quoted_columns
from iceberg_maint.errors import RefusedError, StaleBatchError
from iceberg_maint.ports.engine import EngineFailedError
from iceberg_maint_tests.support.spark.unhealthy_tables import rewrite, sick_table, workshop
from iceberg_maint_tests.support.spark.workshop import FOOTER, FULL, Workshop

pytestmark = [pytest.mark.spark, pytest.mark.drawn(1)]


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    return workshop(spark, lake_dir)


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("policy", [FULL, FOOTER], ids=["full", "footer"])
def test_rewrite_every_format_version_keeps_rows_and_drops_deletes(
    shop: Workshop, version: int, policy: Policy
) -> None:
    name = sick_table(shop, version)
    written = rewrite(shop, name, policy)
    removed = 0 if version == 1 else 3
    proof = written.proof
    assert (proof.input_records, proof.output_records, proof.removed_records) == (30, 30 - removed, removed)
    table = shop.writers.load(name)
    tasks = shop.writers.tasks(table)
    assert len(tasks) == 2
    assert all(t.deletes().isEmpty() for t in tasks)
    assert {f.path for f in written.files} == {t.file().location() for t in tasks}


@pytest.mark.variant
def test_rewrite_v1_table_commits_without_a_sequence_number(shop: Workshop) -> None:
    """No delete can exist on v1, so there is nothing that a data sequence number would protect."""
    name = sick_table(shop, 1)
    batch = shop.batch(name)
    assert (batch.snapshot_sequence_number, {f.delete_files for g in batch.groups for f in g.files}) == (
        0,
        {()},
    )
    rewrite(shop, name)
    assert shop.writers.load(name).currentSnapshot().sequenceNumber() == 0


@pytest.mark.variant  # spark/rewrite/test_columnar.py
def test_rewrite_v3_keeps_the_lineage_of_every_row(shop: Workshop) -> None:
    name = sick_table(shop, 3)
    shop.sql(f"update {name} set id = 100 where id = 7")
    before = shop.lineage(name)
    rewrite(shop, name)
    assert shop.lineage(name) == before
    assert len({row[-2] for row in before}) == 27


@pytest.mark.variant
def test_rewrite_v3_row_whose_lineage_got_lost_is_seen_by_the_proof(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql import functions as F

    name = sick_table(shop, 3)
    real = bin_pack._rows
    monkeypatch.setattr(
        bin_pack,
        "_rows",
        lambda table, source, group: real(table, source, group).withColumn(
            "_row_id", F.lit(None).cast("bigint")
        ),
    )
    assert not shop.engine.write(shop.batch(name), FULL).proof.equal


def test_rewrite_v3_that_would_not_carry_lineage_is_refused(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = sick_table(shop, 3)
    real = bin_pack._rows
    monkeypatch.setattr(
        bin_pack, "_rows", lambda table, source, group: real(table, source, group).drop("_row_id")
    )
    with pytest.raises(RefusedError, match="without _row_id") as refusal:
        shop.engine.write(shop.batch(name), FOOTER)
    assert refusal.value.code == "ICM-108"


def test_rewrite_table_upgraded_to_v3_and_not_written_since_has_no_lineage_yet(shop: Workshop) -> None:
    name = sick_table(shop, 2)
    shop.sql(f"alter table {name} set tblproperties ('format-version'='3')")
    for file in rewrite(shop, name).files:
        rows = pq.read_table(file.path.removeprefix("file:"))
        assert [rows[column].null_count for column in LINEAGE] == [file.record_count, file.record_count]
    assert len({row[-2] for row in shop.lineage(name)}) == 27


@pytest.mark.variant
def test_rewrite_all_rows_deleted_by_positions_is_a_commit_that_only_removes(shop: Workshop) -> None:
    name = shop.new_name("native")
    table = shop.writers.create(name, version=2)
    file = shop.writers.append(table, [{"id": 1, "v": "x"}, {"id": 2, "v": "y"}])
    shop.writers.delete_at(table, {file.location(): [0, 1]})
    written = rewrite(shop, name)
    assert written.files == ()
    assert (written.proof.input_records, written.proof.output_records) == (2, 0)
    assert shop.writers.tasks(shop.writers.load(name)) == []


@pytest.mark.variant
def test_rewrite_partition_scoped_position_deletes_are_applied_to_their_files(shop: Workshop) -> None:
    name = shop.new_name("native")
    table = shop.writers.create(name, version=2, partitioned_by="v")
    spec = table.spec()
    first = shop.writers.append(table, [{"id": i, "v": "a"} for i in range(4)], spec, ["a"])
    second = shop.writers.append(table, [{"id": i, "v": "a"} for i in range(4, 8)], spec, ["a"])
    shop.writers.delete_at(table, {first.location(): [0], second.location(): [1, 2]}, spec, ["a"])
    written = rewrite(shop, name)
    assert (written.proof.input_records, written.proof.removed_records) == (8, 3)


@pytest.mark.variant
def test_rewrite_of_one_partition_leaves_the_others_alone(shop: Workshop) -> None:
    name = sick_table(shop, 2)
    before = {t.file().location() for t in shop.writers.tasks(shop.writers.load(name))}
    batch = shop.batch(name, partitions=["cat"])
    written = shop.engine.write(batch, FULL)
    shop.commit(batch, written)
    after = {t.file().location() for t in shop.writers.tasks(shop.writers.load(name))}
    assert before - after == batch.paths()
    assert after - before == {f.path for f in written.files}


@pytest.mark.variant
def test_rewrite_splits_large_groups_into_the_expected_files(shop: Workshop) -> None:
    name = shop.new_name("native")
    shop.sql(f"create table {name} (id bigint, v binary) using iceberg")
    noise = "aggregate(sequence(1, 16), '', (text, n) -> concat(text, sha2(concat(id, ':', n), 512)))"
    for _ in range(4):
        shop.sql(f"insert into {name} select /*+ coalesce(1) */ id, unhex({noise}) from range(200)")
    size = sum(f.fileSizeInBytes() for f in shop.writers.files(shop.writers.load(name)))
    batch = shop.batch(name, target_bytes=size // 2)
    written = rewrite(shop, name, target_bytes=size // 2)
    assert (batch.expected_output_files, len(written.files)) == (2, 2)


@pytest.mark.variant
def test_second_reader_duckdb_sees_the_same_rows(shop: Workshop) -> None:
    name = sick_table(shop, 2)
    rewrite(shop, name)
    paths = [t.file().location().removeprefix("file:") for t in shop.writers.tasks(shop.writers.load(name))]
    found = duckdb.connect().execute("select id, cat from read_parquet($1)", [paths]).fetchall()
    assert sorted(found, key=repr) == shop.rows(name)


def test_proof_value_changed_while_writing_is_unequal(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql import functions as F

    real = bin_pack._rows
    changed = F.when(F.col("id") == 9, 10).otherwise(F.col("id"))
    monkeypatch.setattr(
        bin_pack, "_rows", lambda table, source, group: real(table, source, group).withColumn("id", changed)
    )
    proof = shop.engine.write(shop.batch(sick_table(shop, 2)), FULL).proof
    assert (proof.equal, proof.input_records - proof.removed_records) == (False, proof.output_records)


def without_nine(rows: DataFrame) -> DataFrame:
    return rows.where("id <> 9")


def with_nine_twice(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    times = F.when(F.col("id") == 9, F.array(F.lit(1), F.lit(2))).otherwise(F.array(F.lit(1)))
    return rows.withColumn("n", F.explode(times)).drop("n")


@pytest.mark.parametrize("policy", [FULL, FOOTER], ids=["full", "footer"])
@pytest.mark.parametrize("fault", [without_nine, with_nine_twice])
def test_proof_row_lost_or_doubled_while_writing_is_unequal(
    shop: Workshop,
    monkeypatch: pytest.MonkeyPatch,
    policy: Policy,
    fault: Callable[[DataFrame], DataFrame],
) -> None:
    real = bin_pack._rows
    monkeypatch.setattr(bin_pack, "_rows", lambda table, source, group: fault(real(table, source, group)))
    assert not shop.engine.write(shop.batch(sick_table(shop, 2)), policy).proof.equal


def test_proof_deletes_not_applied_is_unequal(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    name = sick_table(shop, 2)
    monkeypatch.setattr(bin_pack, "_rows", lambda table, source, group: source.select(*quoted_columns(table)))
    proof = shop.engine.write(shop.batch(name), FULL).proof
    assert not proof.equal


def test_observation_that_counted_a_retried_stage_twice_is_looked_at_again(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql import Observation

    class Doubled(Observation):
        @property
        def get(self) -> dict[str, Any]:
            return {key: 2 * value for key, value in super().get.items()}

    monkeypatch.setattr("pyspark.sql.Observation", Doubled)
    name = sick_table(shop, 2)
    for policy in (FULL, FOOTER):
        assert shop.engine.write(shop.batch(name), policy).proof.input_records == 30


@pytest.mark.parametrize("policy", [FULL, FOOTER], ids=["full", "footer"])
def test_read_of_other_files_than_planned_is_refused_before_writing(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch, policy: Policy
) -> None:
    """As Spark 4.1 reads in silence when it is given the option by which 3.5 is told what to read."""
    name = sick_table(shop, 2)

    def whole_table(bridge: Any, table: Any, identifier: str, group_id: str, options: Any = None) -> Any:
        return shop.spark.table(identifier)

    monkeypatch.setattr(bin_pack, "read_staged", whole_table)
    with pytest.raises(RefusedError, match="instead of the planned files") as refusal:
        shop.engine.write(shop.batch(name, partitions=["cat"]), policy)
    assert refusal.value.code == "ICM-101"


def test_read_of_more_rows_than_planned_is_refused(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    name = sick_table(shop, 2)
    real = bin_pack._source
    monkeypatch.setattr(bin_pack, "_source", lambda *arguments: real(*arguments).where("id <> 9"))
    with pytest.raises(RefusedError, match="Spark read") as refusal:
        shop.engine.write(shop.batch(name), FULL)
    assert refusal.value.code == "ICM-101"


def test_write_group_that_fails_fails_the_batch_and_starts_no_other(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def first_fails(_bridge: Any, _table: Any, _batch: Any, tasks: Any, *_: Any) -> Any:
        started.append(tasks.group)
        raise RuntimeError("no space left")

    monkeypatch.setattr(bin_pack, "rewrite_group", first_fails)
    batch = shop.batch(sick_table(shop, 2))
    one_at_a_time = Policy(rewrite_data_files=RewriteDataFilesPolicy(max_concurrent_groups=1))
    with pytest.raises(RuntimeError, match="no space left"):
        shop.engine.write(batch, one_at_a_time)
    assert started == [batch.groups[0]]


def test_cancel_from_another_thread_stops_the_running_jobs(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql import functions as F

    running, ended = threading.Event(), threading.Event()
    real_write = bin_pack._write

    def tell(*arguments: Any) -> None:
        running.set()
        real_write(*arguments)

    asleep = F.expr("if(java_method('java.lang.Thread', 'sleep', 60000L) is null, id, id)")
    real = bin_pack._rows
    monkeypatch.setattr(
        bin_pack, "_rows", lambda table, source, group: real(table, source, group).withColumn("id", asleep)
    )
    monkeypatch.setattr(bin_pack, "_write", tell)
    tracker = shop.spark.sparkContext.statusTracker()

    def cancel() -> None:
        running.wait()
        # What the tracker shows may be the job before: its word comes late.
        while not ended.wait(0.2):
            shop.engine.cancel()

    stop = threading.Thread(target=cancel, daemon=True)
    stop.start()
    name = sick_table(shop, 1)
    try:
        with pytest.raises(
            EngineFailedError, match=r"SPARK_JOB_CANCELLED|cancelled part of cancelled job group"
        ):
            shop.engine.write(shop.batch(name), FULL)
    finally:
        ended.set()
        stop.join(30)
    shop.spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    assert tracker.getActiveJobsIds() == []


@pytest.mark.variant
def test_commit_of_files_another_process_wrote_uses_their_json(shop: Workshop) -> None:
    name = sick_table(shop, 3)
    before = shop.lineage(name)
    batch = shop.batch(name)
    written = shop.engine.write(batch, FULL)
    other = workshop_engine(shop)
    assert shop.commit(batch, written, engine=other).status is CommitStatus.COMMITTED
    assert shop.lineage(name) == before


def workshop_engine(shop: Workshop) -> Any:
    return type(shop)(shop.spark, shop.catalog).engine


def test_write_after_schema_change_is_stale(shop: Workshop) -> None:
    name = sick_table(shop, 2)
    batch = shop.batch(name)
    shop.sql(f"alter table {name} add column extra int")
    with pytest.raises(StaleBatchError):
        shop.engine.write(batch, FULL)


def test_versions_come_from_the_running_jvm(shop: Workshop) -> None:
    shop.engine.write(shop.batch(sick_table(shop, 2)), FOOTER)
    assert shop.engine.versions()["iceberg"] == "1.12.0"


def test_engine_without_work_starts_no_session() -> None:
    from iceberg_maint.engines.spark.engine import SparkEngine

    def never() -> Any:
        raise AssertionError("started")

    engine = SparkEngine(never, never)
    engine.cancel()
    assert engine.versions() == {}
