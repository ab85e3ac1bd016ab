"""Does everything that could tell a secret, as a child process: Dagster first, then every command.

    python -m iceberg_maint_tests.security.everything TABLE

It asks Dagster's resource for a Spark session, and ends with calls that fail, at home and in Dagster.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

import dagster as dg

from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.cli import main as program
from iceberg_maint.config import load_config
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.defs.assets.spark_resource import SPARK_RESOURCE
from iceberg_maint.defs.load_definitions import definitions_from
from iceberg_maint.defs.runs import table_run
from iceberg_maint.demo.heal import InProcessDagster
from iceberg_maint.wiring import adapters
from iceberg_maint_tests.security.canaries import all_canaries, settings


def commands(table: str) -> list[list[str]]:
    """Every command that looks at or works on a table, some in both forms."""
    return [
        ["tables"],
        ["observe", table, "--json"],
        ["plan", table],
        ["why", table],
        ["why", table, "--json"],
        ["run", table, "--force", "--json"],
        ["attest", table],
        ["history", table, "--json"],
        ["reconcile", table],
        ["pause", table, "--note", "by hand"],
        ["resume", table],
        ["release", table],
        ["report"],
        ["doctor"],
    ]


def call(*arguments: str) -> int:
    """The program's exit code."""
    print(f"\n=== {' '.join(arguments)}", flush=True)
    try:
        program(list(arguments))
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def check_they_arrive(defs: dg.Definitions) -> None:
    """The secrets are where they are needed: else their absence elsewhere would prove nothing."""
    resource = defs.get_repository_def().get_top_level_resources()[SPARK_RESOURCE]
    spark = resource.resource_fn(dg.build_init_resource_context()).spark_session
    for name, canary in settings().items():
        key = name if name.startswith("spark.") else f"spark.sql.catalog.lake.{name}"
        assert spark.conf.get(key) == canary, name


def leak(*_: object, **__: object) -> NoReturn:
    """A library that tells all it knows."""
    try:
        raise ValueError(f"cause: {all_canaries()}")
    except ValueError as why:
        raise OSError("login failed with " + " and ".join(all_canaries().values())) from why


def main() -> None:
    """Everything, in order. Exits with 1 where something did not end as it should."""
    (table,) = sys.argv[1:]
    # What passes by itself is tried again half a minute later, and then a minute: here at once.
    table_run.RETRIES = dg.RetryPolicy(max_retries=table_run.RETRIES.max_retries, delay=0)
    defs = definitions_from(os.environ)
    lake = InProcessDagster(defs, Path(os.environ["DAGSTER_HOME"]), [TableId.parse(table)])
    assert lake.observe().success
    assert lake.run(TableId.parse(table), lake.partitions(TableId.parse(table))).success
    check_they_arrive(defs)
    codes = {" ".join(c): call(*c) for c in commands(table)}
    assert set(codes.values()) == {0}, codes
    PyIcebergCatalog.pin = leak  # type: ignore[method-assign]
    PyIcebergCatalog.tables = leak  # type: ignore[method-assign]
    assert not lake.run(TableId.parse(table), lake.partitions(TableId.parse(table))).success
    lake.observe()
    for failing in (["observe", table], ["run", table, "--json"], ["tables"], ["doctor", "--no-spark"]):
        assert call(*failing) == 1, failing
    lake.close()
    # A database that does not answer, in the words of its driver.
    away = {**os.environ, "LEDGER": os.environ["LEDGER"].replace("127.0.0.1:", "127.0.0.1:1")}
    try:
        adapters.build(load_config(None, away)).ledger.registry.now_ms()
    except Exception as error:  # noqa: BLE001 - what it says is what is looked at
        print(error)


if __name__ == "__main__":
    main()
