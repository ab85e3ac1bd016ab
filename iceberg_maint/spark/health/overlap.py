"""Measures the overlap of column ranges from Spark's metadata tables, with a sweep in SQL."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import TYPE_CHECKING

from iceberg_maint.core.model.column_bounds import TRUNCATED_AT
from iceberg_maint.core.model.sort_order import LayoutOrder, SortColumn

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

METRICS = ("unsorted_files", "unbounded_files", "sort_ranges", "overlap_depth_sum", "max_overlap_depth")


def layout_of(files: DataFrame, order: LayoutOrder, by: Iterable[str]) -> DataFrame:
    """`METRICS` per distinct value of the columns `by`.

    `files` are live data files with these columns, `sort_order_id` and `readable_metrics`.
    """
    from pyspark.sql import functions as F

    keys = list(by)
    ranges = [_range(column, n) for n, column in enumerate(order.measured)]
    bounded = reduce(lambda a, b: a & b, (_is_range(column, n) for n, column in enumerate(order.measured)))
    file_ranges = files.select(*keys, "sort_order_id", *(c for pair in ranges for c in pair))
    file_ranges = file_ranges.withColumn("bounded", F.coalesce(bounded, F.lit(0) == 1))
    order_id = F.lit(order.sort_order_id)
    unsorted = (order_id != 0) & (F.coalesce("sort_order_id", F.lit(0)) != order_id)
    counts = file_ranges.groupBy(*keys).agg(
        F.sum(unsorted.cast("long")).alias("unsorted_files"),
        F.sum((~F.col("bounded")).cast("long")).alias("unbounded_files"),
    )
    column_depths = [_depths(file_ranges.where("bounded"), keys, n) for n in range(len(order.measured))]
    depths = reduce(lambda a, b: a.unionAll(b), column_depths)
    sums = depths.groupBy(*keys).agg(
        F.count("*").alias("sort_ranges"),
        F.sum("depth").alias("overlap_depth_sum"),
        F.max("depth").alias("max_overlap_depth"),
    )
    same_keys = reduce(lambda a, b: a & b, (counts[k].eqNullSafe(sums[k]) for k in keys))
    overlap_metrics = [F.coalesce(sums[name], F.lit(0)).alias(name) for name in METRICS[2:]]
    joined = counts.join(sums, same_keys, "left")
    return joined.select(*(counts[k] for k in keys), *METRICS[:2], *overlap_metrics)


def _depths(files: DataFrame, keys: list[str], n: int) -> DataFrame:
    """The start of each range with the number of open ranges there: the ranges that have started, minus those that
    have ended. An empty range counts itself."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    low, high = F.col(f"low{n}"), F.col(f"high{n}")
    start = F.struct(low.alias("at"), F.lit(1).alias("step"), (low == high).cast("long").alias("empty"))
    end = F.struct(high.alias("at"), F.lit(-1).alias("step"), F.lit(0).cast("long").alias("empty"))
    events = files.select(*keys, F.explode(F.array(start, end)).alias("event")).select(*keys, "event.*")
    # The default window frame includes all events at the same value.
    open_ranges = F.sum("step").over(Window.partitionBy(*keys).orderBy("at"))
    return (
        events.withColumn("open", open_ranges)
        .where("step = 1")
        .select(*keys, (F.col("open") + F.col("empty")).alias("depth"))
    )


def _range(column: SortColumn, n: int) -> tuple[Column, Column]:
    from pyspark.sql import functions as F

    low, high = _bounds(column)
    if column.type in ("string", "binary"):
        head = TRUNCATED_AT - 1
        cut = (F.length(low) == TRUNCATED_AT) & (F.substring(low, 1, head) == F.substring(high, 1, head))
        high = F.when(cut, low).otherwise(high)
    return low.alias(f"low{n}"), high.alias(f"high{n}")


def _is_range(column: SortColumn, n: int) -> Column:
    from pyspark.sql import functions as F

    low, high = F.col(f"low{n}"), F.col(f"high{n}")
    ordered = low <= high
    return ordered & ~F.isnan(low) & ~F.isnan(high) if column.type in ("float", "double") else ordered


def _bounds(column: SortColumn) -> tuple[Column, Column]:
    from pyspark.sql import functions as F

    metrics = F.col("readable_metrics").getField(column.name)
    return metrics.getField("lower_bound"), metrics.getField("upper_bound")
