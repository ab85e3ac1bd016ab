"""Credentials of a table's FileIO reach the worker and no text of the job."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import RDD
from pyspark.sql import SparkSession

from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.java_errors import WorkerFailedError
from iceberg_maint.engines.spark.rewrite.columnar.job import run_tasks

SECRET = "c4nary-73"
IO = {"s3.secret-access-key": SECRET}


def reversed_secret(task: str, _attempt: int, io: Mapping[str, str]) -> str:
    return task + io["s3.secret-access-key"][::-1]


def failing(task: str, _attempt: int, io: Mapping[str, str]) -> str:
    raise RuntimeError(f"{task} of {len(io)} settings")


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> list[bytes]:
    """What Spark sends to each Python worker of a cluster: the function of the task and all that it refers to."""
    monkeypatch.setattr(Bridge, "is_local", False)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)
    found: list[bytes] = []
    module = sys.modules[RDD.__module__]
    prepare: Any = module.__dict__["_prepare_for_python_RDD"]

    def noted(context: Any, command: Any) -> Any:
        result = prepare(context, command)
        found.append(bytes(result[0]))
        return result

    monkeypatch.setattr(module, "_prepare_for_python_RDD", noted)
    return found


@pytest.mark.variant
def test_worker_gets_the_credentials_and_the_function_of_the_task_has_none(
    spark: SparkSession, commands: list[bytes]
) -> None:
    found = run_tasks(Bridge(spark), reversed_secret, ["a", "b"], [1, 1], IO)
    assert found == ["a" + SECRET[::-1], "b" + SECRET[::-1]]
    assert len(commands) == 1
    assert SECRET.encode() not in commands[0]


def test_error_of_a_task_on_this_machine_has_no_credentials(spark: SparkSession) -> None:
    with pytest.raises(WorkerFailedError) as caught:
        run_tasks(Bridge(spark), failing, ["a"], [1], IO)
    assert str(caught.value) == f"RuntimeError: a of {len(IO)} settings"


def test_error_of_a_task_has_no_credentials(spark: SparkSession, commands: list[bytes]) -> None:
    with pytest.raises(Py4JJavaError) as caught:
        run_tasks(Bridge(spark), failing, ["a"], [1], IO)
    assert "a of 1 settings" in str(caught.value)
    assert SECRET not in str(caught.value)
    assert len(commands) == 1
