"""Jobs on threads: what happens to the others when one fails."""

from __future__ import annotations

import threading

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from iceberg_maint.spark.jvm.bridge import Bridge
from iceberg_maint.spark.jvm.jobs import Jobs, new_job_group

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
