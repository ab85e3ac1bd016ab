"""Sorted rows: the rows of a file group in the table's sort order or in z-order, a task per file.

Spark's own range partitioning would run the whole read twice, once to find where to cut. Here the
cuts come from a sample of the sort columns alone, so that all rows are read once, and the proof
counts them once.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from iceberg_maint.core.model.sort_order import LayoutOrder, SortColumn
from iceberg_maint.spark.jvm.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_SAMPLE_PER_PIECE = 500
_SAMPLE_AT_LEAST = 20_000
_SEED = 20
_Z_BITS = 6
"""Bits of a column's rank in z-order at most: 64 ranges of equally many rows each."""
_LONG_BITS = 62
_PLACE = "iceberg_maint_z"


@dataclass(frozen=True, slots=True)
class _Key:
    """A column as it is cut by: its values come to Python and go back as they are."""

    value: Column
    descending: bool = False
    nulls_last: bool = False


def sorted_rows(
    rows: DataFrame, unobserved: DataFrame, order: LayoutOrder, pieces: int, records: int
) -> DataFrame:
    """The rows in order, every one of `pieces` tasks holding a range of its own.

    `unobserved` are the same rows, read for a sample; `records` is about how many there are.
    """
    columns = rows.columns
    if order.z_order:
        return _z_ordered(rows, unobserved, order.columns, pieces, records).select(*map(quoted, columns))
    keys = [_key(column) for column in order.columns]
    sample = _sample(unobserved, keys, records, pieces) if pieces > 1 else []
    placed = _placed(rows, keys, _cuts(sample, pieces))
    return placed.sortWithinPartitions(*(_ordering(c) for c in order.columns)).select(*map(quoted, columns))


def _z_ordered(
    rows: DataFrame, unobserved: DataFrame, by: Sequence[SortColumn], pieces: int, records: int
) -> DataFrame:
    """Rows by the interleaved bits of each column's rank among 64 ranges of equally many rows."""
    from pyspark.sql import functions as F

    keys = [_key(column) for column in by]
    sample = [tuple(row) for row in _sample(unobserved, keys, records, pieces)]
    bits = max(1, min(_Z_BITS, _LONG_BITS // len(keys)))
    ranges = []
    for at in range(len(keys)):
        known = sorted(_plain(row[at]) for row in sample if row[at] is not None and not _is_nan(row[at]))
        ranges.append(_cuts([(v,) for v in known], 1 << bits))
    ranks = [_leaf_of([k], cuts, list(range(len(cuts) + 1))) for k, cuts in zip(keys, ranges, strict=True)]
    place = free_name(rows.columns)
    marked = rows.withColumn(place, _interleaved_column(ranks, bits))
    values = sorted(
        _interleaved(
            [_rank(value, [cut[0] for cut in cuts]) for value, cuts in zip(row, ranges, strict=True)], bits
        )
        for row in sample
    )
    key = _Key(F.col(place))
    placed = _placed(marked, [key], _cuts([(v,) for v in values], pieces))
    return placed.sortWithinPartitions(place, *(_ordering(c) for c in by))


def free_name(columns: Sequence[str]) -> str:
    """A column name that none of these has, as Spark compares them: whatever their case."""
    taken = {c.lower() for c in columns}
    return next(name for n in range(len(taken) + 1) if (name := f"{_PLACE}{n or ''}") not in taken)


def _key(column: SortColumn) -> _Key:
    """Dates and times as integers: Python's calendar ends before Iceberg's."""
    from pyspark.sql import functions as F

    value = F.col(".".join(quoted(part) for part in column.name.split(".")))
    if column.type == "date":
        value = F.unix_date(value)
    elif column.type.startswith("timestamp"):
        value = F.unix_micros(value.cast("timestamp"))
    return _Key(value, column.descending, column.nulls_last)


def _ordering(column: SortColumn) -> Column:
    from pyspark.sql import functions as F

    value = F.col(".".join(quoted(part) for part in column.name.split(".")))
    if column.descending:
        return value.desc_nulls_last() if column.nulls_last else value.desc_nulls_first()
    return value.asc_nulls_last() if column.nulls_last else value.asc_nulls_first()


# where to cut


def _sample(rows: DataFrame, keys: Sequence[_Key], records: int, pieces: int) -> list[Any]:
    """Key tuples of some rows, in order. Only the keys' columns are read."""
    from pyspark.sql import functions as F

    wanted = max(_SAMPLE_AT_LEAST, _SAMPLE_PER_PIECE * pieces)
    some = rows.select(*(k.value.alias(f"k{n}") for n, k in enumerate(keys)))
    if records > wanted:
        some = some.sample(fraction=wanted / records, seed=_SEED)
    orders = []
    for n, key in enumerate(keys):
        column = F.col(f"k{n}")
        if key.descending:
            orders.append(column.desc_nulls_last() if key.nulls_last else column.desc_nulls_first())
        else:
            orders.append(column.asc_nulls_last() if key.nulls_last else column.asc_nulls_first())
    # One partition: sorting several would read the sample once more, to cut that.
    return some.repartition(1).sortWithinPartitions(*orders).collect()


def _cuts(in_order: Sequence[Sequence[Any]], pieces: int) -> list[tuple[Any, ...]]:
    """The first keys of all pieces but the first; fewer where many rows have one key."""
    if not in_order:
        return []
    at = (tuple(map(_plain, in_order[len(in_order) * n // pieces])) for n in range(1, pieces))
    first = tuple(map(_plain, in_order[0]))
    return [cut for cut in dict.fromkeys(at) if cut != first]


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


# which piece a row belongs to


def _placed(rows: DataFrame, keys: Sequence[_Key], cuts: Sequence[tuple[Any, ...]]) -> DataFrame:
    """Rows in one partition more than there are cuts, each of one range of keys."""
    if not cuts:
        return rows.repartition(1)
    count = len(cuts) + 1
    return rows.repartition(count, _leaf_of(keys, cuts, _numbers_by_partition(rows.sparkSession, count)))


def _numbers_by_partition(spark: SparkSession, count: int) -> list[int]:
    """For each of `count` partitions a number that Spark's hash partitioning puts there."""
    from pyspark.sql import functions as F

    found: dict[int, int] = {}
    start = 0
    while len(found) < count:
        numbers = spark.range(start, start + 64 * count, 1, 1)
        for number, partition in numbers.select("id", F.expr(f"pmod(hash(id), {count})")).collect():
            found.setdefault(partition, number)
        start += 64 * count
    return [found[partition] for partition in range(count)]


def _leaf_of(keys: Sequence[_Key], cuts: Sequence[tuple[Any, ...]], leaves: Sequence[int]) -> Column:
    """A search among the cuts: the leaf with the number of cuts that are not after the row."""
    from pyspark.sql import functions as F

    if not cuts:
        return F.lit(leaves[0]).cast("bigint")
    middle = len(cuts) // 2
    lower = _leaf_of(keys, cuts[:middle], leaves[: middle + 1])
    upper = _leaf_of(keys, cuts[middle + 1 :], leaves[middle + 1 :])
    return F.when(_is_before(keys, cuts[middle]), lower).otherwise(upper)


def _is_before(keys: Sequence[_Key], cut: Sequence[Any]) -> Column:
    """Whether a row's key comes before the cut's; never NULL."""
    from pyspark.sql import functions as F

    key, value = keys[0], cut[0]
    if value is None:
        before = key.value.isNotNull() if key.nulls_last else F.expr("false")
    else:
        literal = F.lit(value)
        less = key.value > literal if key.descending else key.value < literal
        before = F.coalesce(less, F.lit(not key.nulls_last))
    if len(keys) == 1:
        return before
    same = key.value.eqNullSafe(F.lit(value))
    return before | (same & _is_before(keys[1:], cut[1:]))


# z-order


def _rank(value: Any, cuts: Sequence[Any]) -> int:
    """As `_leaf_of` with leaves from 0, where NULL comes first and NaN last."""
    if value is None:
        return 0
    return len(cuts) if _is_nan(value) else bisect_right(cuts, _plain(value))


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _interleaved(ranks: Sequence[int], bits: int) -> int:
    return sum(
        (rank >> bit & 1) << (bit * len(ranks) + at) for bit in range(bits) for at, rank in enumerate(ranks)
    )


def _interleaved_column(ranks: Sequence[Column], bits: int) -> Column:
    from pyspark.sql import functions as F

    value = F.lit(0).cast("bigint")
    for bit in range(bits):
        for at, rank in enumerate(ranks):
            one = F.shiftright(rank, bit).bitwiseAND(F.lit(1).cast("bigint"))
            value = value + F.shiftleft(one, bit * len(ranks) + at)
    return value
