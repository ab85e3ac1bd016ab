"""What Spark computes of a table's entries: sums by partition and kind, references of deletes, overlap of ranges, and the check
that it read every manifest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

from iceberg_maint.core.health.metrics import SIZE_EDGES_BYTES
from iceberg_maint.core.model.columns import TRUNCATED_AT
from iceberg_maint.core.model.table_state import FileKind, LayoutOrder, SortColumn, TableState
from iceberg_maint.errors import UnreadableTableError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


_DELETE_FILE_PATH = 2147483546
"""Field id of `file_path` in position delete files (spec: Reserved Field IDs)."""


def scopes_and_kinds(
    entries: DataFrame, names: list[str], small_below_bytes: int, large_above_bytes: int
) -> DataFrame:
    """One row per scope and kind."""
    from pyspark.sql import functions as F

    size = F.col("size_bytes")
    small, large = size < small_below_bytes, size > large_above_bytes
    edges = (0, *SIZE_EDGES_BYTES)
    upper = (*SIZE_EDGES_BYTES, None)
    bins = [
        (size >= low) if high is None else (size >= low) & (size < high)
        for low, high in zip(edges, upper, strict=True)
    ]
    return entries.groupBy("spec_id", "kind", *names).agg(
        F.count("*").alias("files"),
        F.sum(size).alias("bytes"),
        F.sum("records").alias("records"),
        F.sum(small.cast("long")).alias("small_files"),
        F.sum(F.when(small, size).otherwise(0)).alias("small_bytes"),
        F.sum(large.cast("long")).alias("large_files"),
        F.array(*(F.sum(b.cast("long")) for b in bins)).alias("histogram"),
        F.min("sequence_number").alias("oldest"),
        F.min("added").alias("oldest_added"),
        F.max("sequence_number").alias("newest"),
        F.collect_set(F.struct("snapshot_id", "sequence_number")).alias("commits"),
    )


def only_path(file: Column, puffin: Column) -> Column:
    """The path of the data file of a position delete file that names only one. It is the bounds of `file_path`,
    because Spark omits `referenced_data_file`."""
    from pyspark.sql import functions as F

    lower, upper = (file[name].getItem(_DELETE_FILE_PATH) for name in ("lower_bounds", "upper_bounds"))
    names_one_file = (file["content"] == 1) & ~puffin & (lower == upper)
    return F.when(names_one_file, lower.cast("string"))


def with_references(entries: DataFrame) -> DataFrame:
    """The delete files with two flags. `shared`: the position delete file names several data files.
    `unreferenced`: the data file that it names is not live, or is newer than the delete file."""
    from pyspark.sql import functions as F

    is_data = F.col("kind") == FileKind.DATA.value
    data = entries.where(is_data).select(
        F.col("path").alias("live"), F.col("sequence_number").alias("live_number")
    )
    deletes = entries.where(~is_data)
    applies = (deletes["referenced"] == data["live"]) & (data["live_number"] <= deletes["sequence_number"])
    joined = deletes.join(data, applies, "left")
    shared = (F.col("kind") == FileKind.POSITION_DELETES.value) & F.col("referenced").isNull()
    unreferenced = F.col("referenced").isNotNull() & F.col("live").isNull()
    return joined.withColumns({"shared": shared, "unreferenced": unreferenced})


def delete_groups(deletes: DataFrame, names: list[str]) -> DataFrame:
    """One row per scope, kind, commit and pair of flags of delete files."""
    from pyspark.sql import functions as F

    by = ("spec_id", "kind", *names, "sequence_number", "snapshot_id", "shared", "unreferenced")
    return deletes.groupBy(*by).agg(F.count("*").alias("files"), F.sum("records").alias("records"))


def named_files(state: TableState, deletes: DataFrame, names: list[str]) -> DataFrame:
    """How many live data files position delete files name: one row per partition key and set of `by`. A set has the
    highest sequence number of the deletes of each spec that name a file."""
    from pyspark.sql import functions as F

    naming = deletes.where((F.col("kind") == FileKind.POSITION_DELETES.value) & F.col("live").isNotNull())
    key = key_spec_id(state, F.col("spec_id")).alias("key_spec_id")
    newest = naming.groupBy(key, "spec_id", *names, "referenced").agg(
        F.max("sequence_number").alias("sequence_number")
    )
    by_spec = F.sort_array(F.collect_list(F.struct("spec_id", "sequence_number"))).alias("by")
    of_file = newest.groupBy("key_spec_id", *names, "referenced").agg(by_spec)
    return of_file.groupBy("key_spec_id", *names, "by").agg(F.count("*").alias("files"))


def key_spec_id(state: TableState, spec_id: Column) -> Column:
    """The spec id that stands for the partition key: unpartitioned specs have the same key."""
    from pyspark.sql import functions as F

    unpartitioned = [s.spec_id for s in state.specs.values() if s.is_unpartitioned]
    return F.when(spec_id.isin(unpartitioned), unpartitioned[0] if unpartitioned else None).otherwise(spec_id)


def check_entries(state: TableState, groups: Iterable[Mapping[str, Any]]) -> None:
    """Raises UnreadableTableError ICM-101 if the live files or their rows are not as many as the manifest list counts,
    or if a sequence number is below the lowest that the list states.

    `groups` have `kind`, `files`, `records` and `oldest`, the lowest sequence number. A list without counts is not
    compared.
    """
    rows = list(groups)
    for is_deletes, what in ((False, "data"), (True, "delete")):
        own = [r for r in rows if (r["kind"] != FileKind.DATA.value) is is_deletes]
        manifests = [m for m in state.manifests if m.is_deletes is is_deletes]
        files = [n for m in manifests for n in (m.added_files, m.existing_files)]
        records = [n for m in manifests for n in (m.added_rows, m.existing_rows)]
        for column, listed in (("files", files), ("records", records)):
            counted = sum(r[column] for r in own)
            if None not in listed and counted != sum(n for n in listed if n is not None):
                raise _contradiction(
                    state,
                    f"Spark reads {counted} live {column} of {what} manifests, but the manifest list counts "
                    f"{sum(n for n in listed if n is not None)}",
                )
        lowest = min((m.min_sequence_number for m in manifests), default=0)
        oldest = min((r["oldest"] for r in own), default=lowest)
        if oldest < lowest:
            raise _contradiction(
                state,
                f"a live {what} entry has sequence number {oldest}, but the manifest list says that the lowest is "
                f"{lowest}",
            )


def _contradiction(state: TableState, why: str) -> UnreadableTableError:
    return UnreadableTableError(
        "ICM-101",
        f"{state.table}: {why}. The table was not measured.",
        "find out which of the two is wrong, and repair it before the next rewrite.",
    )


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
