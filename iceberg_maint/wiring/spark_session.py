"""Wiring of Spark: its settings, its session, and what a session reaches."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any

from iceberg_maint.config import Config
from iceberg_maint.config.document import START_ALWAYS
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.policy.data import RewriteStrategy
from iceberg_maint.loop.context import SessionFactory
from iceberg_maint.machine.files import private_folder

if TYPE_CHECKING:
    from iceberg_maint.engines.spark.session.settings import SparkSettings


def scratch_folders(config: Config) -> tuple[str, ...]:
    """The folders of this machine in which Spark and its processes write scratch files."""
    conf, default = config.spark.conf, str(config.home / "spark")
    if not config.spark.master.startswith("local"):
        return (gettempdir(),)
    local = os.environ.get("SPARK_LOCAL_DIRS") or conf.get("spark.local.dir", default)
    return (gettempdir(), *(folder.strip() for folder in local.split(",")))


def spark_settings(config: Config) -> SparkSettings:
    """The configured settings of the session, checked. Starts nothing.

    Raises RefusedError ICM-105 for an unsafe setting. `session` adds the jars.
    """
    from iceberg_maint.engines.spark.session.settings import SparkSettings, catalog_conf, spark_conf

    settings = SparkSettings(
        master=config.spark.master,
        jars=(),
        catalogs={
            name: catalog_conf(name, c.type, c.uri, c.warehouse, c.properties)
            for name, c in config.catalogs.items()
        },
        conf=config.spark.conf,
        local_dir=str(config.home / "spark"),
    )
    spark_conf(settings)
    return settings


def ready_spark_settings(config: Config) -> SparkSettings:
    """The settings with the locked jars and the jars of the configuration.

    Fetches missing locked jars. Sets JAVA_HOME of this process to a supported Java.

    Raises RefusedError ICM-103 for a missing Java or a jar that is missing or fails its checksum, ICM-164 for a
    variable of Spark Connect, ConfigurationError ICM-100 for YARN without HADOOP_CONF_DIR.
    """
    from iceberg_maint.engines.spark.session.jars import environment_fetch, load_lock, resolve_jars
    from iceberg_maint.engines.spark.session.java import find_java, quiet_home
    from iceberg_maint.engines.spark.session.session_checks import (
        check_declared,
        check_driver_environment,
        check_launch_environment,
    )

    settings = spark_settings(config)
    declared = config.spark.jars
    for jar in declared:
        check_declared(jar.path, jar.sha256)
    check_driver_environment(os.environ)
    check_launch_environment(settings.master, os.environ)
    java = find_java(os.environ, shim_dir=config.cache / "java")
    os.environ["JAVA_HOME"] = str(quiet_home(java, config.cache / "java"))
    jars = resolve_jars(load_lock().jars, config.cache / "jars", environment_fetch(java, os.environ))
    return replace(settings, jars=tuple(map(str, [*jars, *(jar.path for jar in declared)])))


def start_settings(config: Config) -> SparkSettings:
    """The settings that Spark starts with: those of `ready_spark_settings`, and the folder of archives of classes.

    Raises what `ready_spark_settings` raises, and IcebergMaintError ICM-176 for a scratch folder that is nearly full.
    """
    from iceberg_maint.engines.spark.session.session_checks import check_scratch

    check_scratch(scratch_folders(config))
    return replace(ready_spark_settings(config), class_folder=config.cache / "classes")


def launched_spark_conf(config: Config) -> dict[str, str]:
    """All settings of the session, for a program that builds the session itself.

    Starts this process's JVM first, so that no secret is among its arguments. Raises what
    `start_settings` raises.
    """
    from iceberg_maint.engines.spark.session.driver_jvm import launch
    from iceberg_maint.engines.spark.session.settings import spark_conf

    settings = start_settings(config)
    return launch(spark_conf(settings), config.secrets, settings.class_folder)


def session(config: Config) -> Any:
    """This process's Spark session. Starts it if there is none."""
    from iceberg_maint.engines.spark.session.session import build_session

    private_folder(config.home)
    return build_session(start_settings(config), config.secrets)


def driver(config: Config) -> Any:
    """This process's JVM, in which Spark starts when work needs it; its Spark session where that must start at once."""
    from iceberg_maint.engines.spark.session.session import start_driver

    private_folder(config.home)
    return start_driver(
        start_settings(config),
        config.secrets,
        is_needed=config.spark.start == START_ALWAYS,
        # Spark writes the rows. Compiled for a short run only, it takes 1.4 times the CPU.
        is_short=not _uses_native(config),
    )


def _uses_native(config: Config) -> bool:
    """Whether the policy of a table asks for the strategy `native`."""
    policies = (config.defaults, *config.catalog_policies.values(), *(p.values for p in config.patterns))
    return any(p.get("rewrite_data_files.strategy") == RewriteStrategy.NATIVE for p in policies)


def spark_versions(config: Config) -> Mapping[str, str]:
    """Starts Spark and returns its versions. Raises RefusedError ICM-103, ICM-105."""
    from iceberg_maint.engines.spark.session.session import versions

    return versions(session(config))


def spark_reads(config: Config, table: TableId, metadata_location: str) -> str:
    """Starts Spark, loads a table through its catalog and FileIO, and returns the name of the FileIO. Raises
    IcebergMaintError ICM-133, UnreadableTableError ICM-101."""
    from iceberg_maint.engines.spark.access import read_table

    return read_table(session(config), str(table), metadata_location)


def executors_problem(config: Config) -> str:
    """Starts Spark and returns why the Python workers of its executors cannot rewrite files, "" if they can."""
    from iceberg_maint.engines.spark.access import executors_problem

    return executors_problem(session(config))


def weak_requirements(config: Config, table: TableId) -> str | None:
    """Starts Spark and returns why the table's catalog does not take the requirements of our commits; None if it
    takes them or compares the base of a commit itself. Raises what the catalog raises."""
    from iceberg_maint.engines.spark.access import weak_requirements

    return weak_requirements(session(config), str(table))


def checked(session: SessionFactory) -> SessionFactory:
    """The session of another program, refused (ICM-103, ICM-105) if it is unsafe."""

    def check() -> Any:
        from iceberg_maint.engines.spark.session.session import check_session

        spark = session()
        check_session(spark)
        return spark

    return check
