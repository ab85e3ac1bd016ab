"""Loads small files into two Iceberg tables: `orders` by PyIceberg, `clicks` by the IO manager of dagster-iceberg."""

import os
import time
from datetime import UTC, datetime, timedelta

import dagster as dg
import pyarrow as pa
from dagster_iceberg.config import IcebergCatalogConfig
from dagster_iceberg.io_manager.arrow import PyArrowIcebergIOManager
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, DoubleType, LongType, NestedField

LAKE = {"uri": os.environ["LAKE_URI"], "warehouse": os.environ["LAKE_WAREHOUSE"]}
ORDERS = Schema(
    NestedField(1, "day", DateType()),
    NestedField(2, "id", LongType()),
    NestedField(3, "amount", DoubleType()),
)
CLICKS = pa.schema([("at", pa.timestamp("us")), ("page", pa.string())])
BATCHES = 6


class Session(dg.ConfigurableResource):
    """A resource of the name that other packages use too."""

    app: str


def create_tables() -> None:
    """Creates both tables, `orders` by day."""
    catalog = SqlCatalog("lake", **LAKE)
    catalog.create_namespace_if_not_exists("shop")
    by_day = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "day"))
    catalog.create_table_if_not_exists("shop.orders", ORDERS, partition_spec=by_day)
    catalog.create_table_if_not_exists("shop.clicks", CLICKS)


@dg.asset(key=["raw", "orders"], metadata={"dagster/table_name": "lake.shop.orders"}, kinds={"iceberg"})
def orders(context: dg.AssetExecutionContext, pyspark: Session) -> dg.MaterializeResult:
    """Appends the orders of three days, in several small commits."""
    context.log.info(f"loaded by {pyspark.app}")
    table = SqlCatalog("lake", **LAKE).load_table("shop.orders")
    days = [datetime.now(UTC).date() - timedelta(days=back) for back in range(3)]
    for batch in range(BATCHES):
        ids = range(batch * 300, batch * 300 + 300)
        rows = [{"day": days[i % 3], "id": i, "amount": i / 7} for i in ids]
        table.append(pa.Table.from_pylist(rows, ORDERS.as_arrow()))
        time.sleep(1)
    return dg.MaterializeResult(metadata={"rows": BATCHES * 300})


@dg.asset(key=["shop", "clicks"], metadata={"write_mode": "append"}, kinds={"iceberg"})
def clicks() -> pa.Table:
    """A few clicks: one small file."""
    now = datetime.now(UTC).replace(tzinfo=None)
    return pa.Table.from_pylist([{"at": now, "page": f"/{n}"} for n in range(50)], CLICKS)


@dg.definitions
def defs() -> dg.Definitions:
    """The assets, their schedules, and the executor and resources of the project."""
    jobs = [
        dg.define_asset_job(f"load_{name}", key)
        for name, key in (("orders", "raw/orders"), ("clicks", "shop/clicks"))
    ]
    crons = ("*/5 * * * *", "2-59/5 * * * *")
    running = dg.DefaultScheduleStatus.RUNNING
    return dg.Definitions(
        assets=[orders, clicks],
        schedules=[
            dg.ScheduleDefinition(job=job, cron_schedule=cron, default_status=running)
            for job, cron in zip(jobs, crons, strict=True)
        ],
        resources={
            "pyspark": Session(app="shop"),
            "io_manager": PyArrowIcebergIOManager(
                name="lake", config=IcebergCatalogConfig(properties={"type": "sql", **LAKE}), namespace="shop"
            ),
        },
        executor=dg.multiprocess_executor,
    )
