"""Builds Spark sessions, and checks those that others built."""

from __future__ import annotations

import signal
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from iceberg_maint.errors import RefusedError
from iceberg_maint.spark.jvm.bridge import Bridge
from iceberg_maint.spark.session.settings import CATALOG_CLASS, SparkSettings, arguments_of, spark_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUPPORTED: dict[str, tuple[str, str]] = {"4.1": ("2.13", "1.12"), "3.5": ("2.12", "1.12")}
"""Spark version → Scala and Iceberg versions it is run with; tests run on the first."""

SUPPORTED_JAVA = range(17, 24)


@contextmanager
def keeping_sigint() -> Iterator[None]:
    """Gives SIGINT back to who had it before a Spark context started in the body.

    Spark's own handler calls the JVM in the middle of whatever call the signal interrupts; that
    call then ends in a network error, and an interrupt looks like one failed batch among others.
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
    """The session of this process, started when there is none, and checked; its JVM's arguments
    hold none of the `secrets`.

    `JAVA_HOME` must point to a supported Java when Spark starts: that is the caller's business,
    as is stopping the session. Raises RefusedError ICM-103, ICM-105 or ICM-127.
    """
    from pyspark.sql import SparkSession

    conf = spark_conf(settings)
    launch(conf, secrets)
    builder = SparkSession.builder
    for key, value in conf.items():
        builder = builder.config(key, value)
    with keeping_sigint():
        spark = builder.getOrCreate()
    check_session(spark)
    return spark


def launch(conf: Mapping[str, str], secrets: Collection[str]) -> None:
    """Starts this process's JVM, unless it runs, with those of the settings as its arguments that
    may be seen. PySpark itself would write all of them there; a session that is made afterwards
    hands the rest over on a socket.
    """
    from pyspark import SparkConf, SparkContext

    # Not from the JVM's own settings: there is none yet.
    seen = SparkConf(loadDefaults=False)
    for key, value in arguments_of(conf, secrets).items():
        seen.set(key, value)
    SparkContext._ensure_initialized(conf=seen)


def versions(spark: SparkSession) -> dict[str, str]:
    """Versions of what really runs, asked of the JVM."""
    bridge = Bridge(spark)
    return {
        "spark": spark.version,
        "iceberg": str(bridge.iceberg.IcebergBuild.version()),
        "iceberg_commit": str(bridge.iceberg.IcebergBuild.gitCommitShortId()),
        "scala": str(bridge.jvm.scala.util.Properties.versionNumberString()),
        "java": str(bridge.jvm.java.lang.System.getProperty("java.version")),
    }


def check_session(spark: SparkSession) -> None:
    """Refuses a session the engine is not safe on, whoever built it.

    Raises RefusedError ICM-103 for a version outside the tested pairs and ICM-105 for a setting
    under which rows could be written twice, cached metadata be read, or checks be skipped.
    """
    check_versions(versions(spark))
    bridge = Bridge(spark)
    conf = dict(spark.sparkContext.getConf().getAll()) | bridge.conf()
    testing = bridge.jvm.org.apache.spark.util.Utils.isTesting()
    check_conf(conf, testing=bool(testing))


def check_versions(found: dict[str, str]) -> None:
    """Raises RefusedError ICM-103 when these versions do not go together."""
    spark_version = ".".join(found["spark"].split(".")[:2])
    pairs = ", ".join(f"Spark {s} with Scala {c} and Iceberg {i}" for s, (c, i) in SUPPORTED.items())
    if spark_version not in SUPPORTED:
        raise RefusedError("ICM-103", f"Spark {found['spark']} is not supported.", f"use {pairs}.")
    scala, iceberg = SUPPORTED[spark_version]
    if not (found["scala"].startswith(scala) and found["iceberg"].startswith(iceberg)):
        raise RefusedError(
            "ICM-103",
            f"Spark {found['spark']} runs with Scala {found['scala']} and Iceberg {found['iceberg']}.",
            f"use {pairs}.",
        )
    if int(found["java"].split(".")[0]) not in SUPPORTED_JAVA:
        raise RefusedError("ICM-103", f"Java {found['java']} is not supported.", "use Java 17 or 21.")


def check_conf(conf: dict[str, str], *, testing: bool) -> None:
    """Raises RefusedError ICM-105 for a setting that is not safe, ICM-106 for a Hadoop catalog.

    `testing` is Spark's own word on whether `spark.testing` or SPARK_TESTING is set: Iceberg
    skips its age check of orphans then.
    """
    if testing:
        raise RefusedError("ICM-105", "spark.testing is set.", "unset it, and SPARK_TESTING.")
    rules = {
        "spark.sql.adaptive.enabled": ("true", "false"),
        "spark.speculation": ("false", "false"),
        "spark.sql.session.timeZone": ("", "UTC"),
    }
    for key, (default, wanted) in rules.items():
        value = conf.get(key, default)
        if value.lower() != wanted.lower():
            raise RefusedError("ICM-105", f"{key} = {value}; it must be {wanted}.", "set it so.")
    for key, value in conf.items():
        if value != CATALOG_CLASS or not key.startswith("spark.sql.catalog."):
            continue
        if conf.get(f"{key}.cache-enabled", "true").lower() != "false":
            raise RefusedError(
                "ICM-105", f"{key}.cache-enabled is not false: a cached table is a stale table.", "set it so."
            )
        if conf.get(f"{key}.type") == "hadoop":
            raise RefusedError(
                "ICM-106", f"{key}.type = hadoop: its commits are not atomic.", "use another catalog."
            )
