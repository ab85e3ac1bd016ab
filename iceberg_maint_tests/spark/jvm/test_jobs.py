"""Jobs on threads: what happens to the others when one fails."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.jobs import PROOF, Jobs, new_job_group
from iceberg_maint.ports.engine import WorkProgress

pytestmark = pytest.mark.spark


def test_work_between_two_jobs_begins_no_other_to_its_end_once_it_is_to_stop(spark: SparkSession) -> None:
    jobs, between, cancelled, ended = Jobs(), threading.Event(), threading.Event(), []
    real = jobs.cancel

    def cancel(bridge: Bridge) -> None:
        real(bridge)
        cancelled.set()

    def work(name: str) -> str:
        if name == "fails":
            between.wait()
            raise RuntimeError(name)
        between.set()
        cancelled.wait()
        asleep = F.expr("java_method('java.lang.Thread', 'sleep', 20000L)")
        ended.append(spark.range(1).select(asleep).collect())
        return name

    jobs.cancel = cancel
    with pytest.raises(RuntimeError, match="fails"):
        jobs.run(Bridge(spark), new_job_group(), work, [("one", "fails"), ("two", "goes on")], 2)
    assert ended == []


def test_progress_counts_the_rows_of_running_and_ended_jobs_without_those_of_a_proof(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = str(tmp_path / "rows")
    spark.range(100).coalesce(1).write.parquet(folder)
    jobs, bridge, seen = Jobs(), Bridge(spark), list[WorkProgress]()
    assert jobs.progress(bridge, WorkProgress("preparing", 2.0)) == WorkProgress("preparing", 2.0)

    def work(name: str) -> None:
        spark.read.parquet(folder).where("id > 50").collect()
        spark.sparkContext.setJobDescription(f"t {PROOF} (batch b)")
        spark.read.parquet(folder).where("id > 50").collect()
        bridge.spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        seen.append(jobs.progress(bridge, WorkProgress("writing", 3.0)))

    jobs.run(bridge, new_job_group(), work, [("one", "1"), ("two", "2")], 1)
    assert [(p.step, p.seconds, p.groups_done, p.groups, p.rows_read) for p in seen] == [
        ("writing", 3.0, 0, 2, 100),
        ("writing", 3.0, 1, 2, 200),
    ]
    assert seen[0].bytes_read > 0
