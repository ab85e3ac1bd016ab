"""A dbt model that reads the orders, and a report that reads the model."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
from dagster_dbt import DbtCliResource, dbt_assets

DBT = Path(os.environ["SHOP_DBT"])


@dbt_assets(manifest=DBT / "target" / "manifest.json")
def models(context: dg.AssetExecutionContext, dbt: DbtCliResource) -> Iterator[Any]:
    """The models of the dbt project."""
    yield from dbt.cli(["build"], context=context).stream()


@dg.asset(deps=["daily_orders"])
def report() -> dg.MaterializeResult:
    """The orders of each day as Markdown."""
    with duckdb.connect(str(DBT / "shop.duckdb"), read_only=True) as database:
        rows = database.execute("select day, orders, amount from daily_orders order by day").fetchall()
    lines = ["| day | orders | amount |", "|---|---|---|", *(f"| {d} | {n} | {a:.2f} |" for d, n, a in rows)]
    return dg.MaterializeResult(metadata={"report": dg.MetadataValue.md("\n".join(lines))})


@dg.definitions
def defs() -> dg.Definitions:
    """The model, the report, and their schedule."""
    job = dg.define_asset_job("daily_report", [*models.keys, report.key])
    schedule = dg.ScheduleDefinition(
        job=job, cron_schedule="1-59/5 * * * *", default_status=dg.DefaultScheduleStatus.RUNNING
    )
    return dg.Definitions(
        assets=[models, report],
        schedules=[schedule],
        resources={"dbt": DbtCliResource(project_dir=str(DBT), profiles_dir=str(DBT))},
    )
