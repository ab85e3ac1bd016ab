"""Tasks of a small batch run in the driver's process, those of others in workers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.columnar.storage import Storage
from iceberg_maint.core.outcomes.outcome import CommitStatus
from iceberg_maint.core.policy.data import RewriteStrategy
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.java_errors import CancelledError, WorkerFailedError, causes
from iceberg_maint.engines.spark.jvm.jobs import Jobs
from iceberg_maint.engines.spark.rewrite.columnar import job, strategy
from iceberg_maint.engines.spark.rewrite.columnar.job import (
    MOST_BYTES,
    MOST_VALUES,
    InDriver,
    run_in_driver,
    run_tasks,
)
from iceberg_maint.engines.spark.rewrite.columnar.worker import ATTEMPT, of_attempt
from iceberg_maint.ports.engine import Written
from iceberg_maint_tests.support.spark.unhealthy_tables import workshop
from iceberg_maint_tests.support.spark.workshop import FULL, Workshop

pytestmark = pytest.mark.spark

COLUMNAR = replace(
    FULL, rewrite_data_files=replace(FULL.rewrite_data_files, strategy=RewriteStrategy.COLUMNAR)
)


def process(_task: str, _attempt: int) -> str:
    return str(os.getpid())


def attempt_with_io(_task: str, attempt: int, io: dict[str, str]) -> str:
    return f"{os.getpid()} {attempt} {io['s3.region']}"


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("sizes", "values", "here"),
    [
        ([MOST_BYTES - 1, 1], MOST_VALUES, True),
        ([MOST_BYTES, 1], MOST_VALUES, False),
        ([1, 1], MOST_VALUES + 1, False),
        ([1, 1], None, False),
    ],
)
def test_tasks_of_a_small_batch_run_in_this_process(
    spark: Any, sizes: list[int], values: int | None, here: bool
) -> None:
    found = run_tasks(
        Bridge(spark), process, ["a", "b"], sizes, None, None if values is None else InDriver(values)
    )
    assert [pid == str(os.getpid()) for pid in found] == [here, here]


@pytest.mark.parametrize(
    ("master", "declared", "here"),
    [("local[2]", 0, True), ("local[2]", 2 << 30, False), ("spark://127.0.0.1:7077", 0, False)],
)
def test_tasks_of_a_cluster_and_of_workers_with_a_declared_memory_run_there(
    monkeypatch: pytest.MonkeyPatch, master: str, declared: int, here: bool
) -> None:
    executed = SimpleNamespace(collect=lambda: [(0, "a worker")])
    monkeypatch.setattr(job, "_rdd", lambda *_: executed)
    monkeypatch.setattr(job, "_declared", lambda _bridge: (declared, 2))
    bridge: Any = SimpleNamespace(
        cancellations=0,
        is_local=master.startswith("local"),
        parallelism=2,
        spark=SimpleNamespace(sparkContext=None),
    )
    [found] = run_tasks(bridge, process, ["a"], [1], None, InDriver(1))
    assert (found == str(os.getpid()), found == "a worker") == (here, not bridge.is_local)


@pytest.mark.parametrize("size", ["2g", "2048m", "2048"])
def test_declared_memory_is_read_as_spark_reads_it(
    spark: Any, monkeypatch: pytest.MonkeyPatch, size: str
) -> None:
    monkeypatch.setattr(Bridge, "conf", lambda _self: {job.MEMORY_SETTING: size})
    bridge = Bridge(spark)
    text = f"spark.executor.pyspark.memory is 2048 MiB for {bridge.parallelism} cores"
    assert job.declared_memory(bridge) == text


def test_tasks_of_an_object_store_run_in_workers(spark: Any) -> None:
    # Arrow's S3 client holds up the end of its process until a request that was left behind is answered.
    [found] = run_tasks(Bridge(spark), attempt_with_io, ["a"], [1], {"s3.region": "x"}, InDriver(1))
    pid, *others = found.split()
    assert (pid == str(os.getpid()), others) == (False, ["0", "x"])


def test_task_that_fails_in_this_process_runs_again_in_a_worker(spark: Any) -> None:
    driver = os.getpid()

    def failing(task: str, _attempt: int) -> str:
        if os.getpid() == driver and task == "b":
            raise OSError("not here")
        return task if os.getpid() == driver else f"{task} of a worker"

    found = run_tasks(Bridge(spark), failing, ["a", "b"], [1, 1], None, InDriver(2))
    assert found == ["a of a worker", "b of a worker"]


def test_files_of_tasks_that_ended_in_this_process_do_not_fail_the_run_in_a_worker(
    spark: Any, tmp_path: Path
) -> None:
    driver = os.getpid()

    def writing(task: str, attempt: int) -> str:
        if os.getpid() == driver and task == "b":
            raise OSError("not here")
        # As a task creates its output.
        location = of_attempt(str(tmp_path / f"{task}{ATTEMPT}id.parquet"), attempt)
        Storage({}).create(location).close()
        return Path(location).name

    found = run_tasks(Bridge(spark), writing, ["a", "b"], [1, 1], None, InDriver(2))
    assert found == ["a-1-id.parquet", "b-1-id.parquet"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a-0-id.parquet", *found]


def test_failure_of_the_second_run_names_its_cause(spark: Any) -> None:
    def failing(_task: str, _attempt: int) -> str:
        raise FileNotFoundError("nowhere")

    with pytest.raises(WorkerFailedError, match=r"^FileNotFoundError: nowhere$") as failed:
        run_tasks(Bridge(spark), failing, ["a"], [1], None, InDriver(1))
    assert causes(failed.value) == (("FileNotFoundError", "nowhere"),)


def test_cancelled_jobs_end_the_workers(spark: Any, tmp_path: Path) -> None:
    bridge, pid = Bridge(spark), tmp_path / "pid"

    def hanging(task: str, _attempt: int) -> str:
        pid.write_text(str(os.getpid()))
        time.sleep(60)
        return task

    def cancel() -> None:
        while not pid.exists():
            time.sleep(0.01)
        bridge.cancellations += 1

    threading.Thread(target=cancel).start()
    with pytest.raises(CancelledError, match="the tasks of the batch were cancelled"):
        run_tasks(bridge, hanging, ["a"], [MOST_BYTES + 1])
    ended = Path("/proc") / pid.read_text()
    before = time.monotonic()
    while ended.exists() and time.monotonic() - before < 30:
        time.sleep(0.01)
    assert not ended.exists()


def test_cancelled_jobs_end_the_wait_for_a_task_that_hangs_and_begin_no_further_one() -> None:
    jobs, begun, goes_on = Jobs(), [], threading.Event()
    bridge: Any = SimpleNamespace(
        cancellations=0,
        has_spark=True,
        spark=SimpleNamespace(sparkContext=SimpleNamespace(cancelJobGroup=lambda _group: None)),
    )
    jobs._running.add("group")

    def hanging(task: str, _attempt: int) -> str:
        begun.append(task)
        assert goes_on.wait(30)
        return task

    threading.Timer(0.1, jobs.cancel, [bridge]).start()
    before = time.monotonic()
    with pytest.raises(CancelledError, match="the tasks of the batch were cancelled"):
        run_in_driver(bridge, hanging, ["a", "b"])
    assert time.monotonic() - before < 10
    goes_on.set()
    time.sleep(0.1)
    assert begun == ["a"]


@pytest.fixture(scope="module")
def shop(spark: SparkSession, lake_dir: Path) -> Workshop:
    return workshop(spark, lake_dir)


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("kind", "deleted", "values"),
    [("bigint", False, [6 * 2]), ("bigint", True, [None]), ("binary", False, [6 * 2])],
)
def test_batch_without_position_deletes_states_its_values(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch, kind: str, deleted: bool, values: Sequence[int | None]
) -> None:
    name = shop.new_name("native")
    shop.sql(
        f"create table {name} (id bigint, v {kind}) using iceberg tblproperties ('format-version'='2', "
        "'write.delete.mode'='merge-on-read')"
    )
    for start in (0, 3):
        shop.sql(
            f"insert into {name} select id, cast(cast(id as string) as {kind}) from range({start}, {start + 3}, 1, 1)"
        )
    if deleted:
        shop.sql(f"delete from {name} where id = 1")
    stated = []

    def noted(*given: Any, **named: Any) -> list[str]:
        stated.append(None if given[5] is None else given[5].values)
        return run_tasks(*given, **named)

    monkeypatch.setattr(strategy, "run_tasks", noted)
    written = shop.engine.write(shop.batch(name, strategy=RewriteStrategy.COLUMNAR), COLUMNAR)
    assert (written.proof.equal, stated) == (True, values)


@pytest.mark.parametrize(
    ("kind", "value", "rows"),
    [
        pytest.param("array<bigint>", "array_repeat(7L, 2500000)", 2, id="list", marks=pytest.mark.variant),
        pytest.param("string", "repeat('x', 10000)", 10_000, id="text"),
        pytest.param(
            "struct<t: string>",
            "named_struct('t', repeat('x', 10000))",
            10_000,
            id="nested text",
            marks=pytest.mark.variant,
        ),
        pytest.param("string", "concat('x', id)", 10_000, id="short texts"),
    ],
)
def test_small_files_of_large_rows_are_decoded_by_workers(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch, kind: str, value: str, rows: int
) -> None:
    name = shop.new_name("native")
    shop.sql(f"create table {name} (v {kind}) using iceberg")
    for _ in range(2):
        shop.sql(f"insert into {name} select {value} from range(0, {rows // 2}, 1, 1)")
    before = shop.sql(f"select count(*), min(hash(v)), sum(hash(v)) from {name}").collect()
    here: list[bool] = []

    def noted(*given: Any) -> list[str] | None:
        found = run_in_driver(*given)
        here.append(found is not None)
        return found

    monkeypatch.setattr(job, "run_in_driver", noted)
    batch = shop.batch(name, strategy=RewriteStrategy.COLUMNAR)
    written = shop.engine.write(batch, COLUMNAR)
    shop.commit(batch, written)
    assert (written.proof.equal, here[0]) == (True, value.startswith("concat"))
    assert shop.sql(f"select count(*), min(hash(v)), sum(hash(v)) from {name}").collect() == before


def _evolved(shop: Workshop, name: str, _folder: Path) -> None:
    """Files of three schemas: columns are added, renamed, promoted, dropped and moved."""
    shop.sql(f"create table {name} (id int, a string, b float, c string) using iceberg")
    shop.sql(f"insert into {name} select id, 'a', id / 2, 'c' from range(0, 4, 1, 2)")
    shop.sql(f"alter table {name} add column d struct<x: int, y: string>")
    shop.sql(f"alter table {name} rename column a to e")
    shop.sql(f"alter table {name} alter column id type bigint")
    shop.sql(f"alter table {name} alter column b type double")
    shop.sql(
        f"insert into {name} select id, 'e', id / 3, 'c', named_struct('x', 1, 'y', 'z') from range(4, 8, 1, 2)"
    )
    shop.sql(f"alter table {name} drop column c")
    shop.sql(f"alter table {name} add column c decimal(9, 2) first")
    shop.sql(f"insert into {name} select 1.25, id, 'e', id / 5, null from range(8, 12, 1, 2)")


def _imported(shop: Workshop, name: str, folder: Path) -> None:
    """Files without field ids, whose columns are found by the table's name mapping, and one of Iceberg."""
    for part in ("one", "two"):
        rows = shop.spark.range(0, 40, 1, 2).selectExpr("id", "cast(id as string) as a", "id % 3 = 0 as b")
        rows.write.parquet(str(folder / part))
    shop.sql(f"create table {name} (id bigint, a string, b boolean, later int) using iceberg")
    for part in ("one", "two"):
        catalog, _, rest = name.partition(".")
        shop.sql(
            f"call {catalog}.system.add_files(table => '{rest}', source_table => '`parquet`.`{folder / part}`')"
        )
    shop.sql(f"insert into {name} values (1, 'x', null, 7)")


@pytest.mark.drawn(1)
@pytest.mark.parametrize("make", [_evolved, _imported])
def test_driver_and_workers_write_the_same_bytes(
    shop: Workshop,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Workshop, str, Path], None],
) -> None:
    name = shop.new_name("same")
    make(shop, name, tmp_path)
    before = shop.rows(name)
    written, in_driver = list[Written](), list[bool]()

    def noted(*given: Any) -> list[str] | None:
        results = run_in_driver(*given)
        in_driver.append(results is not None)
        return results

    monkeypatch.setattr(job, "run_in_driver", noted)
    for most_bytes in (MOST_BYTES, -1):
        monkeypatch.setattr(job, "MOST_BYTES", most_bytes)
        written.append(shop.engine.write(shop.batch(name, strategy=RewriteStrategy.COLUMNAR), COLUMNAR))
    assert in_driver == [True]
    assert [w.proof.equal for w in written] == [True, True]
    here, there = ([_contents(f.path) for f in w.files] for w in written)
    assert here == there
    assert (
        shop.commit(shop.batch(name, strategy=RewriteStrategy.COLUMNAR), written[0]).status
        is CommitStatus.COMMITTED
    )
    assert shop.rows(name) == before


def _contents(location: str) -> bytes:
    return Path(location.removeprefix("file:")).read_bytes()
