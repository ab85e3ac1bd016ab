"""The strategy `columnar` on real tables: rows, lineage and statistics stay as the native strategy leaves them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from iceberg_maint.columnar.storage import local_path
from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import CommitStatus, OutcomeStatus
from iceberg_maint.core.outcomes.verification import MaintenanceCommit, VerificationStatus, find_commit
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.data import EqualityDeletesPolicy, Policy, RewriteStrategy, Route
from iceberg_maint.engines.spark.rewrite.columnar import key_positions, strategy, worker
from iceberg_maint.engines.spark.rewrite.columnar.job import run_tasks
from iceberg_maint.engines.spark.rewrite.columnar.workers import ENVIRONMENT
from iceberg_maint.engines.spark.verify import SparkVerifier
from iceberg_maint.errors import LOST_FILE_FIX, RefusedError
from iceberg_maint.ports.engine import Written
from iceberg_maint_tests.spark.rewrite.test_bin_pack_schemas import ALL_TYPES, ALL_VALUES, texts
from iceberg_maint_tests.spark.test_column_types import optional, table_of
from iceberg_maint_tests.support.spark.equality_deletes import keys, rows_of
from iceberg_maint_tests.support.spark.housekeeping import Keeper
from iceberg_maint_tests.support.spark.task_faults import miswriting
from iceberg_maint_tests.support.spark.unhealthy_tables import evolved_table, sick_table, workshop
from iceberg_maint_tests.support.spark.workshop import FOOTER, FULL, Workshop

pytestmark = [pytest.mark.spark, pytest.mark.drawn(1)]

COLUMNAR = replace(
    FULL, rewrite_data_files=replace(FULL.rewrite_data_files, strategy=RewriteStrategy.COLUMNAR)
)
FOOTERS = replace(
    FOOTER, rewrite_data_files=replace(FOOTER.rewrite_data_files, strategy=RewriteStrategy.COLUMNAR)
)


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    made = workshop(spark, lake_dir)
    made.sql("create namespace if not exists lake.types")
    return made


def planned(shop: Workshop, name: str) -> Batch:
    batch = shop.batch(name, strategy=RewriteStrategy.COLUMNAR)
    assert batch.strategy == "columnar", batch.work
    return batch


def rewritten(shop: Workshop, name: str, policy: Policy = COLUMNAR, *, mapped: bool = False) -> Written:
    """The table after a columnar rewrite, which must not change a row by two readers. Iceberg's generic reader does not
    read files by a name mapping (`mapped`)."""
    before, generic = repr(shop.rows(name)), [] if mapped else texts(shop, name)
    batch = planned(shop, name)
    written = shop.engine.write(batch, policy)
    assert (written.proof.equal, written.proof.detail, written.note) == (True, "", "")
    result = shop.commit(batch, written)
    assert result.status is CommitStatus.COMMITTED, result.message
    assert repr(shop.rows(name)) == before
    assert mapped or texts(shop, name) == generic
    return written


def contents(written: Written) -> list[dict[str, Any]]:
    """What a manifest states about the files, without names and without sizes, which differ by a few bytes."""
    found = []
    for file in written.files:
        content = json.loads(file.content)
        for key in ("file-path", "file-size-in-bytes", "column-sizes"):
            content.pop(key)
        for key, pairs in content.items():
            if isinstance(pairs, dict):
                content[key] = dict(sorted(zip(pairs["keys"], pairs["values"], strict=True)))
        found.append(content)
    return sorted(found, key=repr)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_columnar_keeps_rows_lineage_and_statistics_and_drops_deletes(shop: Workshop, version: int) -> None:
    name = sick_table(shop, version, by="cat, bucket(2, id)")
    lineage = shop.lineage(name) if version == 3 else []
    native = shop.engine.write(shop.batch(name), FULL)
    written = rewritten(shop, name)
    removed = 0 if version == 1 else 3
    proof = written.proof
    assert (proof.input_records, proof.output_records, proof.removed_records) == (30, 30 - removed, removed)
    assert contents(written) == contents(native)
    assert all(t.deletes().isEmpty() for t in shop.writers.tasks(shop.writers.load(name)))
    assert version < 3 or shop.lineage(name) == lineage


@pytest.mark.parametrize("mode", ["none", "counts"])
def test_metrics_of_row_lineage_follow_the_default_of_the_table(shop: Workshop, mode: str) -> None:
    name = sick_table(shop, 3, by="")
    shop.sql(f"alter table {name} set tblproperties ('write.metadata.metrics.default'='{mode}')")
    native = shop.engine.write(shop.batch(name), FULL)
    assert contents(rewritten(shop, name)) == contents(native)


def test_columnar_all_types_has_the_values_and_the_statistics_of_native(shop: Workshop) -> None:
    name = shop.new_name("native")
    shop.sql(f"create table {name} ({ALL_TYPES}) using iceberg tblproperties ('format-version'='3')")
    for start in (0, 5):
        shop.sql(f"insert into {name} select {ALL_VALUES} from range({start}, {start + 5})")
    shop.sql(f"insert into {name} values ({', '.join(['null'] * 17)})")
    native = shop.engine.write(shop.batch(name), FULL)
    assert contents(rewritten(shop, name)) == contents(native)


@pytest.mark.variant
def test_columnar_evolved_schema_is_read_by_field_id(shop: Workshop) -> None:
    name = evolved_table(shop, version=3)
    shop.sql(f"insert into {name} values (2, 'y', 2.5, 4.25, named_struct('x', 2, 'y', 3), 'new')")
    written = rewritten(shop, name)
    assert [f.record_count for f in written.files] == [2]
    found = {tuple(r) for r in shop.sql(f"select b2, a, c, st.y, gone from {name}").collect()}
    assert found == {(1, "x", 1.5, None, None), (2, "y", 2.5, 3, "new")}


def test_columnar_rows_deleted_by_equality_stay_deleted(shop: Workshop) -> None:
    name = shop.new_name("native")
    table = shop.writers.create(name, version=2)
    for start in (0, 10):
        shop.writers.append(table, rows_of(range(start, start + 10)))
    shop.writers.delete_where(shop.writers.load(name), keys(2, 13))
    rows = shop.writers.rows(name)
    policy = replace(COLUMNAR, equality_deletes=EqualityDeletesPolicy(route=Route.REWRITE))
    outcome = Keeper(shop, policy).run(name, Operation.REWRITE_DATA_FILES, force=True)
    assert outcome.outcome is OutcomeStatus.IMPROVED, outcome.message
    [batch] = outcome.batches
    assert (batch.proof.removed_records, batch.message) == (2, "")  # type: ignore[union-attr]
    assert shop.writers.rows(name) == rows
    assert shop.writers.load(name).currentSnapshot().summary().get("total-equality-deletes") == "0"


def test_columnar_files_without_field_ids_are_read_by_the_name_mapping(
    shop: Workshop, tmp_path: Path
) -> None:
    name = shop.new_name("native")
    table = shop.writers.create(name, "id int, v string", version=2)
    mapping = shop.bridge.iceberg.mapping
    names = mapping.NameMappingParser.toJson(mapping.MappingUtil.create(table.schema()))
    table.updateProperties().set("schema.name-mapping.default", names).commit()
    for number in range(3):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"v": ["a", None], "id": pa.array([number, 7], pa.int32())}), path)
        builder = shop.bridge.iceberg.DataFiles.builder(table.spec()).withPath(str(path))
        file = builder.withFormat("parquet").withFileSizeInBytes(path.stat().st_size).withRecordCount(2)
        table.newAppend().appendFile(file.build()).commit()
    assert len(rewritten(shop, name, mapped=True).files) == 1


@pytest.mark.variant
@pytest.mark.parametrize("policy", [COLUMNAR, FOOTERS], ids=["full", "footer"])
def test_columnar_all_rows_deleted_is_a_commit_that_only_removes(shop: Workshop, policy: Policy) -> None:
    name = shop.new_name("native")
    table = shop.writers.create(name, version=2)
    file = shop.writers.append(table, [{"id": 1, "v": "x"}, {"id": 2, "v": "y"}])
    shop.writers.delete_at(table, {file.location(): [0, 1]})
    assert rewritten(shop, name, policy).files == ()


def time_table(shop: Workshop) -> str:
    """Six files with values of all types that Spark cannot read."""
    kinds = {"at": "time", "ns": "timestamp_ns", "nz": "timestamptz_ns", "u": "uuid", "fx": "fixed[4]"}
    columns = [optional(n, name, kind) for n, (name, kind) in enumerate(kinds.items(), 2)]
    inner = {"type": "struct", "fields": [optional(11, "t", "time")]}
    name = table_of(shop, *columns, optional(10, "s", inner), files=0)
    table, java = shop.writers.load(name), shop.bridge.jvm.java
    generic = shop.bridge.iceberg.data.GenericRecord
    for number in range(6):
        struct = generic.create(table.schema().findType("s"))
        if number % 2:
            struct.setField("t", java.time.LocalTime.parse("23:59:59.999999"))
        row = {
            "id": number,
            "at": java.time.LocalTime.parse(f"10:00:0{number}.000001"),
            "ns": java.time.LocalDateTime.parse(f"2024-01-01T00:00:00.00000000{number}"),
            "nz": java.time.OffsetDateTime.parse(f"2024-01-01T00:00:00.00000000{number}Z"),
            "u": java.util.UUID.fromString(f"00000000-0000-0000-0000-00000000000{number}"),
            "s": struct,
        }
        shop.writers.append(table, [row, {"id": 100 + number}])
    return name


@pytest.mark.variant
def test_columns_that_spark_cannot_read_are_maintained_by_columnar(shop: Workshop) -> None:
    name = time_table(shop)
    before, by_pyiceberg = texts(shop, name), pyiceberg_rows(name, shop)
    outcome = Keeper(shop).run(name, Operation.REWRITE_DATA_FILES, force=True)
    assert outcome.outcome is OutcomeStatus.IMPROVED, outcome.batches
    assert (outcome.batches[0].input_files, outcome.batches[0].output_files) == (6, 1)
    assert texts(shop, name) == before
    assert (pyiceberg_rows(name, shop), len(by_pyiceberg)) == (by_pyiceberg, 12)


def pyiceberg_rows(name: str, shop: Workshop) -> list[dict[str, Any]]:
    """The rows by PyIceberg, which reads nanoseconds."""
    table = SqlCatalog("lake", **shop.catalog._properties).load_table(name.removeprefix("lake."))
    rows: list[dict[str, Any]] = table.scan().to_arrow().sort_by("id").to_pylist()
    return rows


@pytest.mark.variant
def test_verify_of_columns_that_spark_cannot_read_says_so(shop: Workshop) -> None:
    name = time_table(shop)
    Keeper(shop).run(name, Operation.REWRITE_DATA_FILES, force=True)
    state = shop.catalog.pin(TableId.parse(name))
    assert state.snapshot is not None
    commit = find_commit(state, state.snapshot.snapshot_id)
    assert isinstance(commit, MaintenanceCommit)
    found = SparkVerifier(lambda: shop.spark).verify(commit)
    assert found.status is VerificationStatus.UNPROVABLE
    assert found.detail == (
        "Spark does not read at (time), ns (timestamp_ns), nz (timestamptz_ns), s.t (time), so it cannot compare the "
        f"rows again. The proof of the run: iceberg-maint proof {name}"
    )


@pytest.mark.variant
@pytest.mark.parametrize("strategy", [RewriteStrategy.COLUMNAR, RewriteStrategy.AUTO])
def test_equality_deletes_of_rows_that_spark_cannot_read_are_applied_by_columnar(
    shop: Workshop, strategy: RewriteStrategy
) -> None:
    name = time_table(shop)
    shop.writers.delete_where(shop.writers.load(name), keys(2, 104))
    before = texts(shop, name)
    assert len(before) == 10
    policy = replace(
        FULL,
        rewrite_data_files=replace(FULL.rewrite_data_files, strategy=strategy),
        equality_deletes=EqualityDeletesPolicy(route=Route.REWRITE),
    )
    outcome = Keeper(shop, policy).run(name, Operation.REWRITE_DATA_FILES, force=True)
    assert outcome.outcome is OutcomeStatus.IMPROVED, outcome.batches
    assert (outcome.batches[0].output_files, outcome.batches[0].delete_files_removed) == (1, 1)
    assert texts(shop, name) == before
    assert shop.writers.load(name).currentSnapshot().summary().get("total-equality-deletes") == "0"


def test_keys_of_rows_that_spark_cannot_read_must_fit_a_task(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = time_table(shop)
    shop.writers.delete_where(shop.writers.load(name), keys(2, 104))
    monkeypatch.setattr(key_positions, "task_memory_bytes", lambda _: 1)
    policy = replace(COLUMNAR, equality_deletes=EqualityDeletesPolicy(route=Route.REWRITE))
    outcome = Keeper(shop, policy).run(name, Operation.REWRITE_DATA_FILES, force=True)
    assert outcome.outcome is OutcomeStatus.UNSUPPORTED
    assert outcome.batches[0].message.startswith(
        f"ICM-135 {name}: columnar cannot rewrite these files, because 2 keys of a task do not fit 1 bytes; "
        "Spark does not read at (time), ns (timestamp_ns), nz (timestamptz_ns), s.t (time). Fix: "
    )


@pytest.mark.variant
def test_columns_that_spark_cannot_read_in_files_that_columnar_cannot_are_unsupported(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = time_table(shop)
    monkeypatch.setattr(strategy, "rewrite_task", unable)
    outcome = Keeper(shop).run(name, Operation.REWRITE_DATA_FILES, force=True)
    assert outcome.outcome is OutcomeStatus.UNSUPPORTED
    assert outcome.batches[0].message.startswith(f"ICM-135 {name}: columnar cannot rewrite these files, ")


@pytest.mark.variant
def test_columns_that_spark_cannot_read_need_the_memory_of_a_worker(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = time_table(shop)
    monkeypatch.setattr(strategy, "rewrite_task", starved)
    outcome = Keeper(shop).run(name, Operation.REWRITE_DATA_FILES, force=True)
    assert (outcome.outcome, outcome.batches[0].reason) == (OutcomeStatus.UNSUPPORTED, Reason.MEMORY)
    assert outcome.batches[0].message == (
        f"ICM-124 {name}: a task ran out of memory (realloc of size 64 failed); spark.executor.pyspark.memory is not "
        "set; Spark does not read at (time), ns (timestamp_ns), nz (timestamptz_ns), s.t (time). "
        "Fix: raise spark.executor.pyspark.memory, or give the machine more memory."
    )


def unable(_task: str, _attempt: int) -> str:
    """A task that meets a file which the strategy cannot read."""
    return worker.TaskResult("nowhere", unsupported="a column is INT96").text()


def starved(_task: str, _attempt: int) -> str:
    """A task whose worker gets no memory."""
    return worker.TaskResult("nowhere", out_of_memory="realloc of size 64 failed").text()


def dying(_task: str, _attempt: int) -> str:
    """A task whose worker is killed."""
    os._exit(9)


def aborting(task: str, attempt: int) -> str:
    """A task that has written its output, and ends its process as C++ does without memory."""
    worker.rewrite_task(task, attempt)
    os.abort()


def lost_by_spark(_task: str, _attempt: int) -> str:
    """A task that fails as Spark's do whose worker has ended."""
    raise RuntimeError(
        "Job aborted: Python worker exited unexpectedly (crashed). Consider setting a configuration"
    )


def lying(task: str, attempt: int) -> str:
    """A task that has read fewer rows than its files have."""
    result = worker.TaskResult.of_text(worker.rewrite_task(task, attempt))
    return replace(result, read_records=result.read_records - 1).text()


def test_output_that_differs_from_its_input_fails_the_proof_and_commits_nothing(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = sick_table(shop, 2, by="")
    snapshot = shop.writers.load(name).currentSnapshot().snapshotId()
    monkeypatch.setattr(strategy, "rewrite_task", miswriting)
    outcome = Keeper(shop, COLUMNAR).run(name, Operation.REWRITE_DATA_FILES, force=True)
    assert (outcome.outcome, [b.reason for b in outcome.batches]) == (
        OutcomeStatus.FAILED,
        [Reason.PROOF_MISMATCH],
    )
    assert "id" in outcome.batches[0].message
    assert shop.writers.load(name).currentSnapshot().snapshotId() == snapshot


@pytest.mark.variant
def test_record_of_a_batch_that_its_plan_gives_to_native_says_why(shop: Workshop) -> None:
    name = sick_table(shop, 2)
    shop.sql(f"alter table {name} set tblproperties ('write.parquet.page-version'='v2')")
    outcome = Keeper(shop, COLUMNAR).run(name, Operation.REWRITE_DATA_FILES, force=True)
    assert [(b.outcome, b.message) for b in outcome.batches] == [
        (OutcomeStatus.IMPROVED, "written by native: the table writes pages of version v2")
    ]


@pytest.mark.variant
def test_file_that_columnar_cannot_read_is_written_by_native_with_a_note(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = sick_table(shop, 2)
    batch = planned(shop, name)
    monkeypatch.setattr(strategy, "rewrite_task", unable)
    written = shop.engine.write(batch, COLUMNAR)
    assert (written.proof.equal, written.note) == (True, "written by native: a column is INT96")
    assert shop.commit(batch, written).status is CommitStatus.COMMITTED
    [outcome] = Keeper(shop, COLUMNAR).run(name, Operation.REWRITE_DATA_FILES, force=True).batches
    assert (batch.strategy, outcome.cost.strategy) == ("columnar", "native")  # type: ignore[union-attr]


def test_rows_that_do_not_fit_a_worker_are_written_by_native_with_a_note(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = sick_table(shop, 2)
    batch = planned(shop, name)
    monkeypatch.setattr(strategy, "rewrite_task", starved)
    written = shop.engine.write(batch, COLUMNAR)
    assert written.proof.equal
    assert written.note == (
        "written by native: a task ran out of memory (realloc of size 64 failed); spark.executor.pyspark.memory is "
        "not set. Fix: raise it, or give the machine more memory"
    )
    assert shop.commit(batch, written).status is CommitStatus.COMMITTED


@pytest.mark.variant
def test_batch_planned_as_columnar_is_native_once_the_policy_says_so(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = planned(shop, sick_table(shop, 2))
    monkeypatch.setattr(strategy, "rewrite_task", dying)
    native = replace(
        FULL, rewrite_data_files=replace(FULL.rewrite_data_files, strategy=RewriteStrategy.NATIVE)
    )
    assert shop.engine.write(batch, native).proof.fingerprint.startswith("xxh64x2-1:")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("task", "end"),
    [
        (aborting, "a worker process has ended in a task by itself (signal 6)"),
        (lost_by_spark, "Python worker exited unexpectedly"),
        pytest.param(
            dying, "a worker process has ended in a task by itself (signal 0)", marks=pytest.mark.variant
        ),
    ],
)
def test_batch_whose_task_ends_its_process_is_written_by_native_with_a_note(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch, task: Any, end: str
) -> None:
    name = sick_table(shop, 2)
    batch = planned(shop, name)
    folder = Path(str(shop.writers.load(name).location()).removeprefix("file:"))
    before = len(list(folder.rglob("*.parquet")))
    monkeypatch.setattr(strategy, "rewrite_task", task)
    written = shop.engine.write(batch, COLUMNAR)
    assert (written.proof.equal, written.note) == (True, f"written by native: {end}")
    assert len(list(folder.rglob("*.parquet"))) == before + len(written.files)
    assert shop.commit(batch, written).status is CommitStatus.COMMITTED


@pytest.mark.parametrize("policy", [COLUMNAR, FULL], ids=["columnar", "native"])
def test_data_file_that_is_missing_is_named(shop: Workshop, policy: Policy) -> None:
    name = sick_table(shop, 2, by="")
    shop.sql(f"alter table {name} unset tblproperties ('write.parquet.compression-codec')")
    batch = planned(shop, name)
    # The codec is that of the largest files.
    file = max(batch.groups[0].files, key=lambda f: f.size_bytes).path
    Path(file.removeprefix("file:")).unlink()
    outcome = Keeper(shop, policy).run(name, Operation.REWRITE_DATA_FILES, force=True)
    message = outcome.batches[0].message
    assert (outcome.batches[0].reason, "Traceback" in message, "An error occurred" in message) == (
        Reason.ERROR,
        False,
        False,
    )
    if policy is COLUMNAR:
        assert message == f"ICM-101 {batch.table}: {file} does not exist. Fix: {LOST_FILE_FIX}"
    else:
        assert file.removeprefix("file:") in message


@pytest.mark.parametrize("version", [1, 2], ids=["in the driver", "by Spark"])
def test_data_file_that_is_cut_off_is_named(shop: Workshop, version: int) -> None:
    name = sick_table(shop, version, by="")
    batch = planned(shop, name)
    file = batch.groups[0].files[0]
    path = Path(file.path.removeprefix("file:"))
    path.write_bytes(path.read_bytes()[:300])
    snapshot = shop.writers.load(name).currentSnapshot().snapshotId()
    outcome = Keeper(shop, COLUMNAR).run(name, Operation.REWRITE_DATA_FILES, force=True)
    assert outcome.batches[0].reason is Reason.ERROR
    assert outcome.batches[0].message == (
        f"ICM-101 {batch.table}: {file.path} has 300 bytes; its manifest states {file.size_bytes}. "
        f"Fix: {LOST_FILE_FIX}"
    )
    assert shop.writers.load(name).currentSnapshot().snapshotId() == snapshot


@pytest.mark.variant
def test_task_that_read_other_rows_than_planned_is_refused(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strategy, "rewrite_task", lying)
    with pytest.raises(RefusedError, match="planned files with") as refusal:
        shop.engine.write(planned(shop, sick_table(shop, 2)), COLUMNAR)
    assert refusal.value.code == "ICM-101"


def variable(name: str, _attempt: int) -> str:
    return os.environ.get(name, "")


def with_io(task: str, _attempt: int, io: Mapping[str, str]) -> str:
    return f"{task} {io['s3.region']}"


def test_workers_get_the_settings_of_the_file_io_beside_their_tasks(shop: Workshop) -> None:
    results = run_tasks(shop.bridge, with_io, ["a", "b", "c"], [0, 0, 0], {"s3.region": "x"})
    assert results == ["a x", "b x", "c x"]


@pytest.mark.variant
def test_workers_keep_freed_memory(shop: Workshop) -> None:
    names = list(ENVIRONMENT)
    assert run_tasks(shop.bridge, variable, names, [0] * len(names)) == list(ENVIRONMENT.values())


@pytest.mark.parametrize("properties", ["", ", 'write.parquet.page-row-limit' = '20000'"])
def test_pages_of_unique_columns_are_copied_unless_the_table_sets_its_pages(
    shop: Workshop, properties: str
) -> None:
    name = shop.new_name("spliced")
    shop.sql(
        f"create table {name} (text string, flag string) using iceberg tblproperties ('format-version' = '2'"
        f"{properties})"
    )
    for k in range(2):
        shop.sql(
            f"insert into {name} select sha2(cast(id as string), 256), concat('f', id % 3)"
            f" from range({k * 10_000}, {(k + 1) * 10_000}, 1, 1)"
        )
    batch = planned(shop, name)
    before = [pages(f.path) for group in batch.groups for f in group.files]
    written = shop.engine.write(batch, COLUMNAR)
    assert (written.proof.equal, written.proof.detail) == (True, "")
    [output] = [pages(f.path) for f in written.files]
    assert (output == b"".join(before)) is (properties == "")


def pages(location: str) -> bytes:
    """The bytes of the pages of the first column."""
    path = local_path(location)
    assert path is not None
    chunk = pq.read_metadata(path).row_group(0).column(0)
    return path.read_bytes()[chunk.data_page_offset :][: chunk.total_compressed_size]
