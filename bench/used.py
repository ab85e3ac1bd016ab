"""What a benchmark's process and its JVM have used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from iceberg_maint.engines.spark.session.process_tree import Used

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTHING = Used(0.0, 0.0, 0.0)


def cpu_seconds() -> float:
    """CPU of this process and of its JVM, which is its child."""
    own = psutil.Process()
    processes = [own, *(p for p in own.children(recursive=True) if "java" in p.name())]
    return sum(t.user + t.system for t in (p.cpu_times() for p in processes))


def tree_cpu_seconds() -> float:
    """CPU of this process, of all its descendants that live, and of the children that each of them has waited for:
    Spark's Python workers are children of a daemon that lives as long as the session."""
    own = psutil.Process()
    times = (p.cpu_times() for p in [own, *own.children(recursive=True)])
    return sum(t.user + t.system + t.children_user + t.children_system for t in times)


def jvm_process(spark: SparkSession) -> psutil.Process:
    """The JVM of a session that this process started."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    return psutil.Process(gateway.proc.pid)


def peak_mb(pid: int) -> float:
    """Highest resident memory of a process, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def plus(one: Used, other: Used) -> Used:
    """The sum of both."""
    return Used(*map(sum, zip(one, other, strict=True)))


def since(now: Used, before: Used) -> Used:
    """What was used after `before`."""
    return Used(*(a - b for a, b in zip(now, before, strict=True)))
