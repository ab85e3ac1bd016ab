"""Builds Spark sessions, and checks sessions that other code built."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from subprocess import TimeoutExpired
from threading import Event
from typing import TYPE_CHECKING

from iceberg_maint.core.outcomes.failures import file_system_fix
from iceberg_maint.engines.spark.jvm.bridge import JVM_ERRORS, Bridge, bridge_of, one_line
from iceberg_maint.engines.spark.session.class_archive import COMMAND, SETTING, is_read
from iceberg_maint.engines.spark.session.executors import check_executors, is_local, no_executor
from iceberg_maint.engines.spark.session.process_tree import child_pids
from iceberg_maint.engines.spark.session.session_checks import check_classic, check_master_answers
from iceberg_maint.engines.spark.session.settings import (
    CATALOG_CLASS,
    SparkSettings,
    arguments_of,
    spark_conf,
)
from iceberg_maint.errors import IcebergMaintError, RefusedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUPPORTED: dict[str, tuple[str, str]] = {"4.1": ("2.13", "1.12"), "3.5": ("2.12", "1.12")}
"""Spark version → its Scala and Iceberg versions. Tests run on the first."""

SUPPORTED_JAVA = range(17, 24)
EXIT_SECONDS = 300.0
"""Time for the exit of a JVM. To write an archive of its classes takes a few seconds of it."""
START_SECONDS = 300.0
"""Time for the first answer of a JVM. Without load that takes a second."""
_JVM_ARGUMENT = b"pyspark-shell"
_STOPPED = "stopped SparkContext"
"""Part of Spark's message after its masters have not answered for a minute."""


@contextmanager
def keeping_sigint() -> Iterator[None]:
    """Restores the SIGINT handler after a Spark context has started in the block.

    Spark's handler calls the JVM while the signal interrupts another call to it. That other
    call then ends with a network error, so an interrupt looks like one failed batch.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def build_session(settings: SparkSettings, secrets: Collection[str] = ()) -> SparkSession:
    """The session of this process. Starts it if there is none, and checks it. The arguments of its JVM contain
    none of the `secrets`.

    The caller sets `JAVA_HOME` to a supported Java before Spark starts, and stops the session. Raises
    RefusedError ICM-103, ICM-105, ICM-127 or ICM-164, IcebergMaintError ICM-132 or ICM-175, ConfigurationError ICM-100.
    """
    from pyspark.sql import SparkSession

    conf = spark_conf(settings)
    launch(conf, secrets)
    builder = SparkSession.builder
    for key, value in conf.items():
        builder = builder.config(key, value)
    try:
        with keeping_sigint():
            spark = builder.getOrCreate()
    except JVM_ERRORS as why:
        text = one_line(why)
        if (fix := file_system_fix(text)) is not None:
            raise IcebergMaintError(
                "ICM-176", f"Spark does not start: {text.rstrip('.')}.", f"{fix}."
            ) from why
        # Before an application registers, a standalone cluster refuses nothing: the fault is on this side.
        if is_local(settings.master) or (settings.master.startswith("spark://") and _STOPPED not in text):
            raise _not_started(text, "correct the setting of spark.conf that the message names.") from why
        raise no_executor(settings.master, text) from why
    check_session(spark)
    if is_local(settings.master):
        # The daemon of LOCAL_DEFAULTS needs this package. PySpark's default is the `python3` of the path.
        spark.sparkContext.pythonExec = sys.executable
    return spark


def launch(conf: Mapping[str, str], secrets: Collection[str]) -> None:
    """Starts the JVM of this process, unless it runs. Its arguments contain only public settings. Raises
    IcebergMaintError ICM-132 for a standalone cluster whose master does not answer, ICM-175 for a JVM that ends or does
    not answer in time, ICM-176 if this machine gives no file or process.

    PySpark would write all settings to the arguments. A session that is built later sends the other settings over
    a socket.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError

    check_master_answers(conf["spark.master"])
    # Without defaults, because they would come from a JVM, which does not run yet.
    arguments = SparkConf(loadDefaults=False)
    for key, value in arguments_of(conf, secrets).items():
        arguments.set(key, value)
    try:
        with _bounded_start() as is_late:
            SparkContext._ensure_initialized(conf=arguments)
    except OSError as why:
        fix = file_system_fix(str(why)) or "correct what the message names"
        raise IcebergMaintError("ICM-176", f"Spark does not start: {why}.", f"{fix}.") from why
    except PySparkRuntimeError as why:
        if is_late.is_set():
            raise _not_started(
                f"its JVM did not answer within {START_SECONDS:.0f} seconds, and was ended",
                "read what Java wrote on stderr; check the load of this machine and the space of its scratch folders.",
            ) from why
        # Java 17 maps a truncated archive and crashes.
        archive = f" If the file of {SETTING} is damaged, run {COMMAND}." if is_read(conf) else ""
        raise _not_started(
            "its JVM ended before it answered",
            f"read what Java wrote on stderr; check spark.driver.memory and the other settings of spark.conf.{archive}",
        ) from why


@contextmanager
def _bounded_start() -> Iterator[Event]:
    """Kills the JVM that starts in the block after `START_SECONDS`, and at any error: PySpark waits without end for the answer
    of a JVM that lives, and a JVM that could not write its answer would outlive this process. Sets the event if it was late."""
    before, is_late = frozenset(child_pids(_JVM_ARGUMENT)), Event()

    def kill() -> None:
        for pid in frozenset(child_pids(_JVM_ARGUMENT)) - before:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def end() -> None:
        is_late.set()
        kill()

    timer = threading.Timer(START_SECONDS, end)
    timer.daemon = True
    timer.start()
    try:
        yield is_late
    except BaseException:
        kill()
        raise
    finally:
        timer.cancel()


def kill_jvm() -> None:
    """Kills the JVM of this process, if there is one."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()


def exit_jvm() -> int | None:
    """Stops the Spark of this process, lets its JVM exit with all that it does at its exit, and waits for its end. Kills
    the JVM after `EXIT_SECONDS`. Returns its exit code, a negative one if a signal killed it, None if there is no JVM."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return None
    with suppress(*JVM_ERRORS, OSError):
        if SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()
        # It ends without an answer.
        gateway.jvm.java.lang.System.exit(0)
    try:
        gateway.proc.wait(EXIT_SECONDS)
    except TimeoutExpired:
        kill_jvm()
    code: int = gateway.proc.wait()
    return code


def _not_started(why: str, fix: str) -> IcebergMaintError:
    return IcebergMaintError("ICM-175", f"Spark does not start: {why}.", fix)


def versions(spark: SparkSession) -> dict[str, str]:
    """The versions that run, read from the JVM once."""
    return bridge_of(spark).once(_versions)


def _versions(bridge: Bridge) -> dict[str, str]:
    return {
        "spark": bridge.spark.version,
        "iceberg": str(bridge.iceberg.IcebergBuild.version()),
        "iceberg_commit": str(bridge.iceberg.IcebergBuild.gitCommitShortId()),
        "scala": str(bridge.jvm.scala.util.Properties.versionNumberString()),
        "java": str(bridge.jvm.java.lang.System.getProperty("java.version")),
    }


def check_session(spark: SparkSession) -> None:
    """Refuses a session on which the engine is not safe. It also checks sessions that other code built.

    Raises RefusedError ICM-103 for a version outside the tested pairs, and ICM-105 for a setting
    with which Spark could write rows twice, read cached metadata, or skip checks. Raises IcebergMaintError ICM-132
    for a cluster that runs no executor. Raises RefusedError ICM-164 for a session of Spark Connect.
    """
    check_classic(spark)
    check_versions(versions(spark))
    bridge = bridge_of(spark)
    # Others may change the session's settings at any time, the context's only before it starts.
    conf = bridge.once(_context_conf) | bridge.conf()
    testing = bridge.jvm.org.apache.spark.util.Utils.isTesting()
    check_conf(conf, testing=bool(testing))
    check_executors(spark)


def _context_conf(bridge: Bridge) -> dict[str, str]:
    return dict(bridge.spark.sparkContext.getConf().getAll())


def check_versions(running: dict[str, str]) -> None:
    """Raises RefusedError ICM-103 if these versions are not a supported combination."""
    spark_version = ".".join(running["spark"].split(".")[:2])
    pairs = ", ".join(f"Spark {s} with Scala {c} and Iceberg {i}" for s, (c, i) in SUPPORTED.items())
    if spark_version not in SUPPORTED:
        raise RefusedError("ICM-103", f"Spark {running['spark']} is not supported.", f"use {pairs}.")
    scala, iceberg = SUPPORTED[spark_version]
    if not (running["scala"].startswith(scala) and running["iceberg"].startswith(iceberg)):
        raise RefusedError(
            "ICM-103",
            f"Spark {running['spark']} runs with Scala {running['scala']} and Iceberg {running['iceberg']}.",
            f"use {pairs}.",
        )
    if int(running["java"].split(".")[0]) not in SUPPORTED_JAVA:
        raise RefusedError("ICM-103", f"Java {running['java']} is not supported.", "use Java 17 or 21.")


def check_conf(conf: dict[str, str], *, testing: bool) -> None:
    """Raises RefusedError ICM-105 for a setting that is not safe, ICM-106 for a Hadoop catalog.

    `testing` says whether Spark reads `spark.testing` or SPARK_TESTING as set. Iceberg then
    skips its check of the age of orphans.
    """
    if testing:
        raise RefusedError("ICM-105", "spark.testing is set.", "unset it, and SPARK_TESTING.")
    rules = {
        "spark.sql.adaptive.enabled": ("true", "false"),
        "spark.speculation": ("false", "false"),
        "spark.sql.session.timeZone": ("", "UTC"),
    }
    for key, (default, required) in rules.items():
        value = conf.get(key, default)
        if value.lower() != required.lower():
            raise RefusedError(
                "ICM-105", f"{key} = {value}; it must be {required}.", f"set it to {required}."
            )
    for key, value in conf.items():
        if value != CATALOG_CLASS or not key.startswith("spark.sql.catalog."):
            continue
        if conf.get(f"{key}.cache-enabled", "true").lower() != "false":
            raise RefusedError(
                "ICM-105",
                f"{key}.cache-enabled is not false: a cached table is a stale table.",
                f"set {key}.cache-enabled to false.",
            )
        if conf.get(f"{key}.type") == "hadoop":
            raise RefusedError(
                "ICM-106", f"{key}.type = hadoop: its commits are not atomic.", "use another catalog."
            )
