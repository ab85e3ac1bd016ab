"""A standalone Spark cluster out of PySpark's jars: a master and workers, each a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark

from iceberg_maint_tests.qualification.cluster.store import wait_for
from iceberg_maint_tests.support.servers.programs import free_port

SPARK = Path(pyspark.__file__).parent
_JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m", "-XX:+UseSerialGC")
# A worker that gets SIGPWR decommissions itself and its executors.
_DECOMMISSION = ("-Dspark.decommission.enabled=true",)
_OPENS = ("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "util", "util.concurrent")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster: the address of its master, and the process ids of its workers."""

    master: str
    workers: tuple[int, ...]


def spark_class(
    java: Path, main: str, arguments: tuple[str, ...], log: Path, options: tuple[str, ...] = ()
) -> subprocess.Popen[Any]:
    """Starts a program of Spark, with its output in `log`."""
    # Nothing of this project's environment reaches the executors but by the configuration of a session.
    environment = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("PYTHON", "PYSPARK", "VIRTUAL_ENV", "SPARK_SUBMIT_OPTS"))
    }
    environment |= {
        "SPARK_HOME": str(SPARK),
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_HOME": str(java.parent.parent),
    }
    opens = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENS]
    command = [
        str(java),
        *_JVM,
        *options,
        *opens,
        "--add-modules=jdk.incubator.vector",
        "-cp",
        f"{SPARK}/jars/*",
    ]
    with log.open("wb") as out:
        return subprocess.Popen(
            [*command, f"org.apache.spark.{main}", *arguments], stdout=out, stderr=out, env=environment
        )


@contextmanager
def spark_cluster(folder: Path, java: Path, workers: int = 2) -> Iterator[Cluster]:
    """Starts the cluster. The workers' folders are under `folder`."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    started: list[subprocess.Popen[Any]] = []
    try:
        arguments = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        started.append(spark_class(java, "deploy.master.Master", arguments, folder / "master.log"))
        wait_for_log(folder / "master.log", "I have been elected leader")
        for number in range(workers):
            log, work = folder / f"worker-{number}.log", folder / f"worker-{number}"
            offer = ("--cores", "2", "--memory", "2g", "--work-dir", str(work))
            arguments = ("--host", "127.0.0.1", "--webui-port", "0", *offer, master)
            started.append(spark_class(java, "deploy.worker.Worker", arguments, log, _DECOMMISSION))
        for number in range(workers):
            wait_for_log(folder / f"worker-{number}.log", "Successfully registered with master")
        yield Cluster(master, tuple(p.pid for p in started[1:]))
    finally:
        # The workers first: a worker without a master waits for it.
        for process in reversed(started):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process in reversed(started):
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()


def wait_for_log(log: Path, text: str) -> None:
    """Waits until a log contains a text. Raises TimeoutError."""
    wait_for(lambda: text in log.read_text(errors="replace"), 300, f"{log.name} has no {text!r}")
