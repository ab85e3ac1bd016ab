"""Settings that Spark's launcher or its JVM would refuse by a stack trace."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from iceberg_maint.config import load_config
from iceberg_maint.engines.spark.session.java import JavaHome
from iceberg_maint.engines.spark.session.session_checks import (
    check_launch,
    check_launch_environment,
    check_master_answers,
    check_scratch,
)
from iceberg_maint.errors import EXIT_FAILED, EXIT_USAGE, ConfigurationError, IcebergMaintError
from iceberg_maint.wiring.adapters import build

MEMORY, EXECUTOR = "spark.driver.memory", "spark.executor.memory"
WORKERS = "spark.executor.pyspark.memory"


@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[*]",
        "local[2]",
        "local[2,4]",
        "local-cluster[2,1,1024]",
        "spark://h:7077",
        "spark://a:7077,b:7077",
        "k8s://https://kubernetes.default.svc",
        "yarn",
        "sc://h:15002",
    ],
)
def test_master_of_a_known_form_is_accepted(master: str) -> None:
    check_launch(master, {})


@pytest.mark.parametrize(
    "master",
    [
        "sprk://h:7077",
        "spark://h",
        "spark://a:7077,b",
        "yarn-client",
        "mesos://h:5050",
        "local[x]",
        "local[0]",
        "",
    ],
)
def test_master_of_another_form_is_refused_by_its_setting(master: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_launch(master, {})
    assert str(refused.value) == (
        f"ICM-100 spark.master is '{master}'. It must be local[n], spark://host:port, k8s://address or yarn. "
        "Fix: correct spark.master."
    )


@pytest.mark.parametrize(
    ("key", "size", "rule"),
    [
        (MEMORY, "2 gigs", "It must be a whole number and one of k, m, g, t, as 2g"),
        (MEMORY, "2gb", "It must be a whole number and one of k, m, g, t, as 2g"),
        (MEMORY, "2048", "It must be a whole number and one of k, m, g, t, as 2g"),
        (MEMORY, "479m", "Spark needs 480m at least"),
        (EXECUTOR, "4gb!", "It must be a whole number and a unit, as 4g"),
        (EXECUTOR, "1.5g", "It must be a whole number and a unit, as 4g"),
        (EXECUTOR, "4", "Spark needs 480m at least"),
        (WORKERS, "2gig", "It must be a whole number and a unit, as 4g"),
        (WORKERS, "-1g", "It must be a whole number and a unit, as 4g"),
        (WORKERS, "511m", "Spark needs 512m at least"),
    ],
)
def test_memory_with_which_spark_does_not_start_is_refused_with_the_rule(
    key: str, size: str, rule: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_launch("local[2]", {key: size})
    assert str(refused.value).startswith(f"ICM-100 spark.conf.{key} is '{size}'. {rule}.")


@pytest.mark.parametrize(
    ("key", "size"),
    [
        (MEMORY, "480m"),
        (MEMORY, "2G"),
        (EXECUTOR, "4096"),
        (EXECUTOR, "4gb"),
        (WORKERS, "512"),
        (WORKERS, "1t"),
    ],
)
def test_memory_that_spark_reads_is_accepted(key: str, size: str) -> None:
    check_launch("local[2]", {key: size})


def test_wrong_master_is_refused_by_every_command(tmp_path: Path) -> None:
    config = tmp_path / "iceberg_maint.yaml"
    config.write_text(
        "catalogs: {lake: {type: rest, uri: 'http://127.0.0.1:1'}}\nspark: {master: 'spark://h'}\n", "utf-8"
    )
    with pytest.raises(ConfigurationError, match=r"ICM-100 spark\.master is 'spark://h'"):
        build(load_config(config, {}))


def test_yarn_without_the_folder_of_its_settings_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set"
    ) as refused:
        check_launch_environment("yarn", {"HADOOP_CONF_DIR": ""})
    assert (refused.value.code, refused.value.exit_code) == ("ICM-100", EXIT_USAGE)
    check_launch_environment("yarn", {"YARN_CONF_DIR": "/etc/hadoop"})
    check_launch_environment("local[2]", {})


def test_standalone_master_that_does_not_answer_is_an_error_at_once() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # without listen(), a connection is refused
        closed = f"127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(IcebergMaintError) as error:
            check_master_answers(f"spark://{closed},{closed}")
        assert str(error.value) == (
            f"ICM-132 the Spark cluster spark://{closed},{closed} cannot be reached: {closed}: Connection refused; "
            f"{closed}: Connection refused. Fix: start its master, or correct spark.master."
        )
        with socket.create_server(("127.0.0.1", 0)) as server:
            check_master_answers(f"spark://{closed},127.0.0.1:{server.getsockname()[1]}")
    check_master_answers("yarn")


def test_standalone_master_has_five_seconds_to_take_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[tuple[str, int], float]] = []

    def connect(address: tuple[str, int], timeout: float) -> socket.socket:
        asked.append((address, timeout))
        return socket.socket()

    monkeypatch.setattr(socket, "create_connection", connect)
    check_master_answers("spark://h:7077,i:7077")
    assert asked == [(("h", 7077), 5.0)]


def test_jvm_that_ends_at_its_start_is_an_error_with_its_code() -> None:
    """In a process of its own: this one may have a JVM."""
    program = """
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.engines.spark.session.driver_jvm import launch
try:
    launch({"spark.master": "local[1]", "spark.driver.memory": "2 gigs"}, ())
except IcebergMaintError as error:
    print(error.exit_code, error)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == (
        f"{EXIT_FAILED} ICM-175 Spark does not start: its JVM ended before it answered. Fix: read what Java wrote on "
        f"stderr; check spark.driver.memory and the other settings of spark.conf.\n"
    )
    assert "Invalid maximum heap size: -Xmx2 gigs" in done.stderr


def test_start_without_a_free_descriptor_is_an_error_of_the_machine() -> None:
    program = """
import os, resource
from pyspark import SparkConf, SparkContext
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.engines.spark.session.driver_jvm import launch
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 1,) * 2)
try:
    launch({"spark.master": "local[1]"}, ())
except IcebergMaintError as error:
    print(error)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout.startswith("ICM-176 Spark does not start: [Errno 24] Too many open files")
    assert done.stdout.endswith("Fix: raise the limit of open files of this process (ulimit -n).\n")


def test_scratch_folder_that_is_nearly_full_is_refused_before_spark_starts(tmp_path: Path) -> None:
    check_scratch([str(tmp_path), str(tmp_path / "new" / "folder")])
    with pytest.raises(IcebergMaintError) as refused:
        check_scratch([str(tmp_path), "/proc/spark"])  # a file system without space
    assert str(refused.value) == (
        "ICM-176 Spark does not start: its scratch folder /proc/spark has 0.0 MiB free. It needs at least 16 MiB. "
        "Fix: free space there, or name other folders: TMPDIR, and SPARK_LOCAL_DIRS or spark.local.dir."
    )


def test_jvm_that_does_not_answer_is_ended_and_named(tmp_path: Path, java: JavaHome) -> None:
    folder, pids = tmp_path / "bin", tmp_path / "pids"
    folder.mkdir()
    (folder / "java").write_text(
        f"#!/bin/sh\necho $$ > {pids}\nexec sh -c 'while :; do sleep 1; done' java \"$@\"\n"
    )
    (folder / "java").chmod(0o700)
    start = (
        "from iceberg_maint.engines.spark.session import driver_jvm\ndriver_jvm.START_SECONDS = 3.0\n"
        "try: driver_jvm.launch({'spark.master': 'local[1]'}, ())\nexcept Exception as why: print(why)"
    )
    environ = {**os.environ, "JAVA_HOME": str(tmp_path)}
    command = [sys.executable, "-c", start]
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=240)
    assert ended.stdout == (
        "ICM-175 Spark does not start: its JVM did not answer within 3 seconds, and was ended. Fix: read what Java wrote on "
        "stderr; check the load of this machine and the space of its scratch folders.\n"
    )
    assert not Path(f"/proc/{pids.read_text().strip()}").exists()
