"""Checks that the cluster of a session runs an executor.

Spark waits for executors without end, and a cluster that stops an application says why only in its workers' logs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from iceberg_maint.engines.spark.jvm.bridge import JVM_ERRORS, Bridge, one_line
from iceberg_maint.engines.spark.jvm.jobs import new_job_group
from iceberg_maint.errors import IcebergMaintError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_SETTING = "spark.scheduler.maxRegisteredResourcesWaitingTime"
"""Spark's setting for the wait for executors. Its default of 30 seconds is short for clusters that start machines."""
_DEFAULT_WAIT = "300s"
QUIET_SECONDS = 15.0
"""Seconds of a wait for executors after which it is logged."""

_log = logging.getLogger(__name__)


def is_local(master: str) -> bool:
    """Whether the tasks of this master run on this machine."""
    return master.startswith("local")


def check_executors(spark: SparkSession) -> None:
    """Runs a job of one row on a cluster. Does nothing on a local master. Raises IcebergMaintError ICM-132 if the
    job fails or does not end in time."""
    context = spark.sparkContext
    master = str(context.master)
    if is_local(master):
        return
    bridge, job_group = Bridge(spark), new_job_group()

    def run_job() -> None:
        bridge.activate()
        context.setJobGroup(job_group, "iceberg-maint: wait for an executor", interruptOnCancel=True)
        bridge.session.range(1).count()

    wait_seconds = int(context._jsc.sc().conf().getTimeAsSeconds(WAIT_SETTING, _DEFAULT_WAIT))
    require_executor(run_job, lambda: context.cancelJobGroup(job_group), master, wait_seconds)


def require_executor(
    run_job: Callable[[], None], cancel: Callable[[], None], master: str, wait_seconds: float
) -> None:
    """Calls `run_job` on a thread. Raises IcebergMaintError ICM-132 if it raises an error of the JVM, or if it does
    not return within `wait_seconds`: then calls `cancel`. Warns of a long wait."""
    pool = ThreadPoolExecutor(1, "iceberg-maint-executors")
    job = pool.submit(run_job)
    quiet_seconds = min(QUIET_SECONDS, wait_seconds)
    try:
        done, _ = wait([job], quiet_seconds)
        if not done and wait_seconds > quiet_seconds:
            _log.warning(
                "%s has run no executor for %g seconds; waiting up to %g seconds (%s)",
                master,
                quiet_seconds,
                wait_seconds,
                WAIT_SETTING,
            )
        job.result(wait_seconds - quiet_seconds)
    except JVM_ERRORS as why:
        raise no_executor(master, one_line(why)) from why
    except BaseException as why:
        cancel()
        if isinstance(why, TimeoutError):
            raise no_executor(master, f"no executor ran a job within {wait_seconds:g} seconds") from why
        raise
    finally:
        pool.shutdown(wait=False)


def no_executor(master: str, why: str) -> IcebergMaintError:
    """The error for a cluster that runs no job."""
    return IcebergMaintError(
        "ICM-132",
        f"the Spark cluster {master} runs no executor: {why}.",
        "read the logs of the cluster's master and of its workers; compare spark.executor.memory and "
        "spark.executor.cores with what the workers offer. Executors must reach this machine at "
        f"spark.driver.host. If they start slowly, raise {WAIT_SETTING}.",
    )
