"""The check that a cluster runs an executor, without a cluster."""

from __future__ import annotations

import threading

import pytest
from py4j.protocol import Py4JError

from iceberg_maint.engines.spark.session.executors import require_executor
from iceberg_maint.engines.spark.session.settings import SparkSettings, spark_conf
from iceberg_maint.errors import EXIT_FAILED, IcebergMaintError

MASTER = "spark://h:7077"


def test_cluster_without_an_executor_is_an_error_with_its_fix_and_the_job_is_cancelled() -> None:
    cancelled = threading.Event()
    with pytest.raises(IcebergMaintError) as error:
        require_executor(lambda: cancelled.wait(5) and None, cancelled.set, MASTER, 0.05)
    assert cancelled.is_set()
    assert (error.value.code, error.value.exit_code) == ("ICM-132", EXIT_FAILED)
    assert f"the Spark cluster {MASTER} runs no executor: no executor ran a job within 0.05 seconds." in str(
        error.value
    )
    assert "Fix: read the logs of the cluster's master and of its workers;" in str(error.value)


def test_application_that_the_cluster_stops_is_an_error_with_its_cause() -> None:
    def stop() -> None:
        raise Py4JError("SparkContext was shut down")

    with pytest.raises(IcebergMaintError, match=r"ICM-132 .* Py4JError: SparkContext was shut down"):
        require_executor(stop, lambda: None, MASTER, 10)


def test_long_wait_for_an_executor_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("iceberg_maint.engines.spark.session.executors.QUIET_SECONDS", 0.01)
    cancelled = threading.Event()
    with pytest.raises(IcebergMaintError, match=r"within 0\.05 seconds"):
        require_executor(lambda: cancelled.wait(5) and None, cancelled.set, MASTER, 0.05)
    (message,) = caplog.messages
    assert message == (
        f"{MASTER} has run no executor for 0.01 seconds; waiting up to 0.05 seconds "
        "(spark.scheduler.maxRegisteredResourcesWaitingTime)"
    )


def test_interrupt_of_the_wait_cancels_the_job_and_stays_an_interrupt() -> None:
    cancelled = threading.Event()

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        require_executor(interrupt, cancelled.set, MASTER, 10)
    assert cancelled.is_set()


def test_job_that_ends_in_time_passes() -> None:
    jobs: list[str] = []
    require_executor(lambda: jobs.append("ran"), lambda: jobs.append("cancelled"), MASTER, 10)
    assert jobs == ["ran"]


@pytest.mark.parametrize("master", [MASTER, "yarn", "k8s://https://h"])
def test_cluster_gets_neither_the_loopback_address_nor_a_folder_of_this_machine(master: str) -> None:
    conf = spark_conf(SparkSettings(master, (), {}, {}, "/home/me/spark"))
    assert not {"spark.driver.host", "spark.driver.bindAddress", "spark.local.dir"} & set(conf)
    given = {"spark.driver.host": "10.0.0.7", "spark.local.dir": "/scratch"}
    assert spark_conf(SparkSettings(master, (), {}, given, "/home/me/spark")).items() >= given.items()


def test_local_master_listens_on_this_machine_and_uses_the_given_folder() -> None:
    conf = spark_conf(SparkSettings("local[2]", (), {}, {}, "/home/me/spark"))
    assert conf["spark.driver.host"] == conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert conf["spark.local.dir"] == "/home/me/spark"
