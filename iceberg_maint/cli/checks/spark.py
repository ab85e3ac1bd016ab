"""Checks of Spark: its start, its executors, its clients of catalogs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from iceberg_maint.cli.checks.check import FAILED, OK, WARNING, Check, only_advises, try_check

if TYPE_CHECKING:
    from iceberg_maint.config import Config
    from iceberg_maint.core.model.ids import TableId
    from iceberg_maint.loop.context import Context


def check_spark(config: Config) -> str:
    """Starts Spark and returns the versions of its parts."""
    from iceberg_maint.wiring.adapters import spark_versions

    versions = spark_versions(config)
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))


def check_executors(config: Config) -> Check:
    """Whether the executors of a cluster have the packages of the strategy columnar."""
    from iceberg_maint.wiring.adapters import executors_problem

    problem = executors_problem(config)
    if not problem:
        return Check("executors", OK, "their Python has the packages of the strategy columnar")
    return Check(
        "executors",
        WARNING,
        f"{problem}. Spark writes the batches itself (strategy native). Fix: set spark.pyspark.python, and ship the "
        "packages by spark.archives or the image (docs/how-to/cluster.md).",
        "ICM-133",
    )


def check_spark_catalogs(
    config: Config, context: Context, listed: Mapping[str, list[TableId]]
) -> Iterator[Check]:
    """Reads the first table of each catalog through Spark's own clients. Only the changes of a table need them."""
    for name, tables in listed.items():
        if not tables:
            continue
        read = partial(_spark_read, config, context, tables[0])
        check = try_check(f"spark catalog {name}", read)
        if check.status == FAILED and only_advises(config, tables):
            check = replace(check, status=WARNING, detail=f"{check.detail} Mode advise does not need it.")
        yield check
        if check.status == OK and config.catalogs[name].type == "rest" and not only_advises(config, tables):
            yield _requirements(config, tables[0])


def _spark_read(config: Config, context: Context, table: TableId) -> str:
    """Reads a file of the table by Spark, unless the table is refused: Spark would read a governed table."""
    from iceberg_maint.wiring.adapters import spark_reads

    state = context.catalogs.pin(table)
    return f"{table} read by {spark_reads(config, table, state.metadata_location)}"


def _requirements(config: Config, table: TableId) -> Check:
    """Asks a REST catalog by a request that changes nothing whether it takes the requirements of our commits."""
    from iceberg_maint.wiring.adapters import weak_requirements

    check = f"requirements of {table.catalog}"
    try:
        weak = weak_requirements(config, table)
    except Exception as error:  # noqa: BLE001 - an error must not stop the other checks
        weak = f"{type(error).__name__}: {' '.join(str(error).split())}"
    if weak is None:
        return Check(check, OK, "a commit is refused if schema, spec, sort order or a known ref has changed")
    return Check(
        check,
        WARNING,
        f"The catalog does not take the requirements of our commits: {weak}. It compares the table's UUID and the "
        "head of main only. Fix: change schemas and refs of a table only while no run maintains it.",
        "ICM-137",
    )
