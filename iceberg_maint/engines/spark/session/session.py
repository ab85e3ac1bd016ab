"""Builds Spark sessions, and checks sessions that other code built."""

from __future__ import annotations

import signal
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from iceberg_maint.core.outcomes.failures import file_system_fix
from iceberg_maint.engines.spark.jvm.bridge import Bridge, PlainJvm, bridge_of
from iceberg_maint.engines.spark.jvm.java_errors import JVM_ERRORS, one_line
from iceberg_maint.engines.spark.session.driver_jvm import launch, not_started, starts_here
from iceberg_maint.engines.spark.session.executors import check_executors, is_local, no_executor
from iceberg_maint.engines.spark.session.session_checks import check_classic
from iceberg_maint.engines.spark.session.settings import (
    CATALOG_CLASS,
    SparkSettings,
    is_plain,
    spark_conf,
)
from iceberg_maint.errors import IcebergMaintError, RefusedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUPPORTED: dict[str, tuple[str, str]] = {"4.1": ("2.13", "1.12"), "3.5": ("2.12", "1.12")}
"""Spark version → its Scala and Iceberg versions. Tests run on the first."""

SUPPORTED_JAVA = range(17, 24)
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

    conf = launch(spark_conf(settings), secrets, settings.class_folder)
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
            raise not_started(text, "correct the setting of spark.conf that the message names.") from why
        raise no_executor(settings.master, text) from why
    check_session(spark)
    return spark


def start_driver(
    settings: SparkSettings, secrets: Collection[str], *, is_needed: bool, is_short: bool
) -> SparkSession | PlainJvm:
    """The JVM of this process without a Spark context, checked; its session if it has one, if Spark `is_needed` at once, or
    if only Spark reads the settings of a catalog. `is_short`: its work takes seconds. Raises what `build_session`
    raises."""
    from pyspark import SparkContext

    conf = spark_conf(settings)
    if is_needed or not starts_here(conf) or not all(map(is_plain, settings.catalogs.items())):
        return build_session(settings, secrets)
    if SparkContext._active_spark_context is not None:
        return build_session(settings, secrets)
    conf = launch(conf, secrets, settings.class_folder, is_short=is_short)
    plain = PlainJvm(SparkContext._gateway, conf, partial(build_session, settings, secrets))
    check_session(plain)
    return plain


def versions(driver: SparkSession | PlainJvm) -> dict[str, str]:
    """The versions that run, read from the JVM once."""
    return bridge_of(driver).once(_versions)


def _versions(bridge: Bridge) -> dict[str, str]:
    return {
        "spark": bridge.spark_version,
        "iceberg": str(bridge.iceberg.IcebergBuild.version()),
        "iceberg_commit": str(bridge.iceberg.IcebergBuild.gitCommitShortId()),
        "scala": str(bridge.jvm.scala.util.Properties.versionNumberString()),
        "java": str(bridge.jvm.java.lang.System.getProperty("java.version")),
    }


def check_session(spark: SparkSession | PlainJvm) -> None:
    """Refuses a session, or a JVM without one, on which the engine is not safe. It also checks sessions that other code built.

    Raises RefusedError ICM-103 for a version outside the tested pairs, and ICM-105 for a setting
    with which Spark could write rows twice, read cached metadata, or skip checks. Raises IcebergMaintError ICM-132
    for a cluster that runs no executor. Raises RefusedError ICM-164 for a session of Spark Connect.
    """
    check_classic(spark)
    bridge = bridge_of(spark)
    check_versions(versions(spark))
    # Others may change the session's settings at any time, the context's only before it starts.
    conf = (bridge.once(_context_conf) if bridge.has_spark else {}) | bridge.conf()
    testing = bridge.jvm.org.apache.spark.util.Utils.isTesting()
    check_conf(conf, testing=bool(testing))
    if not isinstance(spark, PlainJvm):
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
