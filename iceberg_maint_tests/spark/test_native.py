"""The native strategy on real tables: the rows stay, the deletes go, the proof holds and can fail."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession

from iceberg_maint.core.outcome import CommitStatus
from iceberg_maint.core.policy import OutputSpec, Policy, RewriteDataFilesPolicy
from iceberg_maint.errors import RefusedError, StaleBatchError
from iceberg_maint.ports import Written
from iceberg_maint.spark import native
from iceberg_maint.spark.bridge import JVM_ERRORS, is_java
from iceberg_maint_tests.spark.workshop import FOOTER, FULL, Workshop, workshop_of

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    made = workshop_of(spark, lake_dir)
    made.sql("create namespace if not exists lake.native")
    return made


def sick_table(shop: Workshop, version: int, columns: str = "id bigint, cat string", by: str = "cat") -> str:
    """Three small files per partition (one of them NULL) and, from v2 on, three deleted rows."""
    name = shop.new_name("native")
    partitioned = f"partitioned by ({by})" if by else ""
    shop.sql(
        f"create table {name} ({columns}) using iceberg {partitioned} tblproperties "
        f"('format-version'='{version}', 'write.delete.mode'='merge-on-read', "
        "'write.delete.granularity'='file')"
    )
    for start in (0, 10, 20):
        shop.sql(
            f"insert into {name} select /*+ coalesce(1) */ id, if(id % 5 = 0, null, 'a') "
            f"from range({start}, {start + 10})"
        )
    if version > 1:
        shop.sql(f"delete from {name} where id in (1, 2, 11)")
    return name


def rewrite(shop: Workshop, name: str, policy: Policy = FULL, **how: Any) -> Written:
    """Plans, writes, proves and commits the whole table; the rows must stay, by two readers."""
    before, before_generic = shop.rows(name), shop.writers.rows(name)
    batch = shop.batch(name, **how)
    written = shop.engine.write(batch, policy)
    assert written.proof.equal, written.proof.detail
    result = shop.commit(batch, written)
    assert result.status is CommitStatus.COMMITTED, result.message
    assert shop.rows(name) == before
    assert shop.writers.rows(name) == before_generic
    return written


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


def test_rewrite_v3_keeps_the_lineage_of_every_row(shop: Workshop) -> None:
    name = sick_table(shop, 3)
    shop.sql(f"update {name} set id = 100 where id = 7")
    before = shop.lineage(name)
    rewrite(shop, name)
    assert shop.lineage(name) == before
    assert len({row[-2] for row in before}) == 27


def test_rewrite_v3_row_whose_lineage_got_lost_is_seen_by_the_proof(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql import functions as F

    name = sick_table(shop, 3)
    real = native._rows
    monkeypatch.setattr(
        native,
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
    real = native._rows
    monkeypatch.setattr(
        native, "_rows", lambda table, source, group: real(table, source, group).drop("_row_id")
    )
    with pytest.raises(RefusedError, match="without _row_id") as refusal:
        shop.engine.write(shop.batch(name), FOOTER)
    assert refusal.value.code == "ICM-108"


def test_rewrite_table_upgraded_to_v3_and_not_written_since_has_no_lineage_yet(shop: Workshop) -> None:
    name = sick_table(shop, 2)
    shop.sql(f"alter table {name} set tblproperties ('format-version'='3')")
    rewrite(shop, name)
    assert len({row[-2] for row in shop.lineage(name)}) == 27


def test_rewrite_all_rows_deleted_by_positions_is_a_commit_that_only_removes(shop: Workshop) -> None:
    name = shop.new_name("native")
    table = shop.writers.create(name, version=2)
    file = shop.writers.append(table, [{"id": 1, "v": "x"}, {"id": 2, "v": "y"}])
    shop.writers.delete_at(table, {file.location(): [0, 1]})
    written = rewrite(shop, name)
    assert written.files == ()
    assert (written.proof.input_records, written.proof.output_records) == (2, 0)
    assert shop.writers.tasks(shop.writers.load(name)) == []


def test_rewrite_partition_scoped_position_deletes_are_applied_to_their_files(shop: Workshop) -> None:
    name = shop.new_name("native")
    table = shop.writers.create(name, version=2, partitioned_by="v")
    spec = table.spec()
    first = shop.writers.append(table, [{"id": i, "v": "a"} for i in range(4)], spec, ["a"])
    second = shop.writers.append(table, [{"id": i, "v": "a"} for i in range(4, 8)], spec, ["a"])
    shop.writers.delete_at(table, {first.location(): [0], second.location(): [1, 2]}, spec, ["a"])
    written = rewrite(shop, name)
    assert (written.proof.input_records, written.proof.removed_records) == (8, 3)


def evolved(shop: Workshop) -> str:
    name = shop.new_name("native")
    shop.sql(f"create table {name} (id int, cat string) using iceberg tblproperties ('format-version'='2')")
    for start in (0, 10):
        shop.sql(
            f"insert into {name} select cast(id as int), if(id % 3 = 0, null, 'b') from range({start}, {start + 10})"
        )
    shop.sql(f"alter table {name} add partition field bucket(2, id)")
    shop.sql(f"insert into {name} select cast(id as int), 'c' from range(20, 30)")
    return name


def test_rewrite_evolved_table_keeps_every_file_in_its_own_spec(shop: Workshop) -> None:
    written = rewrite(shop, evolved(shop))
    assert Counter(f.spec_id for f in written.files) == {0: 1, 1: 2}


def test_rewrite_evolved_table_to_the_current_spec_moves_old_files(shop: Workshop) -> None:
    name = evolved(shop)
    written = rewrite(shop, name, output_spec=OutputSpec.CURRENT)
    assert {f.spec_id for f in written.files} == {1}
    assert sum(f.record_count for f in written.files) == 30


ALL_TYPES = (
    "b boolean, i int, l bigint, f float, d double, d9 decimal(9,2), d18 decimal(18,4), d38 decimal(38,10), "
    "s string, bin binary, dt date, ts timestamp, ntz timestamp_ntz, "
    "st struct<a: int, n: struct<x: string, y: array<int>>>, li array<struct<k: string, v: double>>, "
    "m map<string, array<bigint>>, empty array<int>"
)
ALL_VALUES = """
  id % 2 = 0, cast(id as int), id * 4294967296, cast(if(id = 3, 'NaN', id / 7) as float),
  if(id = 4, -0.0D, if(id = 5, double('-Infinity'), id / 3)), cast(id / 3 as decimal(9,2)),
  cast(-id / 3 as decimal(18,4)), cast(id as decimal(38,10)) * 1234567890123456789,
  if(id = 6, '', concat('h\u00e9\u6f22\U0001f600', id)), cast(concat('x', id) as binary), date_add(date'1969-12-30', cast(id as int)),
  timestamp'1969-12-31 23:59:59.999999' + make_interval(0, 0, 0, 0, 0, 0, id), timestamp_ntz'2024-01-01 00:00:00.000001',
  if(id = 1, null, named_struct('a', if(id = 2, null, cast(id as int)), 'n',
     if(id = 3, null, named_struct('x', 'q', 'y', if(id = 4, array(), array(1, null)))))),
  array(named_struct('k', 'a', 'v', 1.0D), null, named_struct('k', null, 'v', id / 2)),
  map('one', array(id), 'none', null, 'empty', array()), if(id = 2, null, array())
"""


def texts(shop: Workshop, name: str) -> list[list[str]]:
    """Rows by Iceberg's generic reader; values that py4j leaves in Java as Java prints them."""
    return sorted(
        [str(v.toString()) if is_java(v) else repr(v) for v in row] for row in shop.writers.rows(name)
    )


@pytest.mark.parametrize("version", [2, 3])
def test_rewrite_all_types_keeps_every_value(shop: Workshop, version: int) -> None:
    name = shop.new_name("native")
    shop.sql(f"create table {name} ({ALL_TYPES}) using iceberg tblproperties ('format-version'='{version}')")
    for start in (0, 5):
        shop.sql(f"insert into {name} select {ALL_VALUES} from range({start}, {start + 5})")
    nulls = ", ".join(["null"] * 17)
    shop.sql(f"insert into {name} values ({nulls})")
    before = sorted(map(repr, shop.spark.table(name).collect()))
    generic = texts(shop, name)
    batch = shop.batch(name)
    written = shop.engine.write(batch, FULL)
    assert written.proof.equal, written.proof.detail
    assert shop.commit(batch, written).status is CommitStatus.COMMITTED
    assert sorted(map(repr, shop.spark.table(name).collect())) == before
    assert texts(shop, name) == generic


def test_rewrite_after_rename_add_drop_and_promotion_reads_by_field_id(shop: Workshop) -> None:
    name = shop.new_name("native")
    shop.sql(
        f"create table {name} (a int, b string, c float, gone int, d decimal(9,2), st struct<x: int>) "
        "using iceberg tblproperties ('format-version'='2')"
    )
    shop.sql(f"insert into {name} values (1, 'x', 1.5, 9, 3.25, named_struct('x', 1))")
    shop.sql(f"alter table {name} rename column a to b2")
    shop.sql(f"alter table {name} rename column b to a")
    shop.sql(f"alter table {name} alter column b2 type bigint")
    shop.sql(f"alter table {name} alter column c type double")
    shop.sql(f"alter table {name} alter column d type decimal(20,2)")
    shop.sql(f"alter table {name} drop column gone")
    shop.sql(f"alter table {name} add columns (gone string, st.y bigint)")
    shop.sql(f"insert into {name} values (2, 'y', 2.5, 4.25, named_struct('x', 2, 'y', 3), 'new')")
    rewrite(shop, name, FOOTER)
    rewrite(shop, name, FULL)
    found = {tuple(r) for r in shop.sql(f"select b2, a, c, st.y, gone from {name}").collect()}
    assert found == {(1, "x", 1.5, None, None), (2, "y", 2.5, 3, "new")}


def test_rewrite_column_names_with_dots_and_quotes_are_taken_literally(shop: Workshop) -> None:
    name = shop.new_name("native")
    shop.sql(f"create table {name} (`a.b` int, `c``d` string, `e f` struct<`g.h`: int>) using iceberg")
    shop.sql(f"insert into {name} values (1, 'x', named_struct('g.h', 5))")
    shop.sql(f"insert into {name} values (2, 'y', null)")
    written = rewrite(shop, name)
    assert (len(written.files), written.proof.output_records) == (1, 2)


def test_rewrite_of_one_partition_leaves_the_others_alone(shop: Workshop) -> None:
    name = sick_table(shop, 2)
    before = {t.file().location() for t in shop.writers.tasks(shop.writers.load(name))}
    batch = shop.batch(name, partitions=["cat"])
    written = shop.engine.write(batch, FULL)
    shop.commit(batch, written)
    after = {t.file().location() for t in shop.writers.tasks(shop.writers.load(name))}
    assert before - after == batch.paths()
    assert after - before == {f.path for f in written.files}


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

    real = native._rows
    changed = F.when(F.col("id") == 9, 10).otherwise(F.col("id"))
    monkeypatch.setattr(
        native, "_rows", lambda table, source, group: real(table, source, group).withColumn("id", changed)
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
    real = native._rows
    monkeypatch.setattr(native, "_rows", lambda table, source, group: fault(real(table, source, group)))
    assert not shop.engine.write(shop.batch(sick_table(shop, 2)), policy).proof.equal


def test_proof_deletes_not_applied_is_unequal(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    name = sick_table(shop, 2)
    monkeypatch.setattr(native, "_rows", lambda table, source, group: source.select(*native._columns(table)))
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
    assert rewrite(shop, name).proof.input_records == 30


@pytest.mark.parametrize("policy", [FULL, FOOTER], ids=["full", "footer"])
def test_read_of_other_files_than_planned_is_refused_before_writing(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch, policy: Policy
) -> None:
    """What Spark 4.1 does in silence with the read option of Spark 3.5."""
    name = sick_table(shop, 2)

    def whole_table(bridge: Any, table: Any, identifier: str, group_id: str, options: Any = None) -> Any:
        return shop.spark.read.option("scan-task-set-id", group_id).table(identifier)

    monkeypatch.setattr(native, "read_staged", whole_table)
    with pytest.raises(RefusedError, match="in place of the planned files") as refusal:
        shop.engine.write(shop.batch(name, partitions=["cat"]), policy)
    assert refusal.value.code == "ICM-101"


def test_read_of_more_rows_than_planned_is_refused(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    name = sick_table(shop, 2)
    real = native._source
    monkeypatch.setattr(native, "_source", lambda *arguments: real(*arguments).where("id <> 9"))
    with pytest.raises(RefusedError, match="Spark read") as refusal:
        shop.engine.write(shop.batch(name), FULL)
    assert refusal.value.code == "ICM-101"


def test_write_group_that_fails_fails_the_batch_and_starts_no_other(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def first_fails(_bridge: Any, _table: Any, _batch: Any, tasks: Any, _policy: Any) -> Any:
        started.append(tasks.group)
        raise RuntimeError("no space left")

    monkeypatch.setattr(native, "rewrite_group", first_fails)
    batch = shop.batch(sick_table(shop, 2))
    one_at_a_time = Policy(rewrite_data_files=RewriteDataFilesPolicy(max_concurrent_groups=1))
    with pytest.raises(RuntimeError, match="no space left"):
        shop.engine.write(batch, one_at_a_time)
    assert started == [batch.groups[0]]


def test_cancel_from_another_thread_stops_the_running_jobs(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql import functions as F

    running = threading.Event()
    real_write = native._write

    def tell(*arguments: Any) -> None:
        running.set()
        real_write(*arguments)

    asleep = F.expr("if(java_method('java.lang.Thread', 'sleep', 60000L) is null, id, id)")
    real = native._rows
    monkeypatch.setattr(
        native, "_rows", lambda table, source, group: real(table, source, group).withColumn("id", asleep)
    )
    monkeypatch.setattr(native, "_write", tell)
    tracker = shop.spark.sparkContext.statusTracker()
    stop = threading.Thread(target=lambda: (running.wait(30), cancel_when_active()))

    def cancel_when_active() -> None:
        for _ in range(300):
            if tracker.getActiveJobsIds():
                break
            threading.Event().wait(0.05)
        shop.engine.cancel()

    stop.start()
    name = sick_table(shop, 1)
    with pytest.raises(JVM_ERRORS):
        shop.engine.write(shop.batch(name), FULL)
    stop.join(30)
    assert tracker.getActiveJobsIds() == []


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
    from iceberg_maint.spark.engine import SparkEngine

    def never() -> Any:
        raise AssertionError("started")

    engine = SparkEngine(never, never)
    engine.cancel()
    assert engine.versions() == {}
