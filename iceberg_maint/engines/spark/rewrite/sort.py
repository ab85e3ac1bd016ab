"""Sorts the rows of a file group by the table's sort order or in z-order, one task per output file.

Spark's range partitioning would read all rows twice, once to find the ranges. Here a sample of the sort columns gives
the ranges. Therefore all rows are read once, and the proof counts them once.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from iceberg_maint.core.model.table_state import LayoutOrder, SortColumn
from iceberg_maint.engines.spark.jvm.conversion import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_SAMPLE_PER_PIECE = 500
_SAMPLE_AT_LEAST = 20_000
_SEED = 20
_Z_BITS = 6
"""The most bits of a column's rank in z-order: 64 ranges with the same number of rows each."""
_LONG_BITS = 62
_Z_COLUMN = "iceberg_maint_z"


@dataclass(frozen=True, slots=True)
class _Key:
    """A sort column whose values cross to Python and back without a change."""

    value: Column
    descending: bool = False
    nulls_last: bool = False


def sorted_rows(
    rows: DataFrame, unobserved: DataFrame, order: LayoutOrder, pieces: int, records: int
) -> DataFrame:
    """The rows in order, in `pieces` tasks with a separate range each.

    `unobserved` are the same rows without the observation; the sample reads them. `records` is the approximate
    number of rows.
    """
    columns = rows.columns
    if order.z_order:
        return _z_ordered(rows, unobserved, order.columns, pieces, records).select(*map(quoted, columns))
    keys = [_key(column) for column in order.columns]
    sample = _sample(unobserved, keys, records, pieces) if pieces > 1 else []
    ranges = _partition_by_range(rows, keys, _cuts(sample, pieces))
    return ranges.sortWithinPartitions(*(_ordering(c) for c in order.columns)).select(*map(quoted, columns))


def _z_ordered(
    rows: DataFrame, unobserved: DataFrame, by: Sequence[SortColumn], pieces: int, records: int
) -> DataFrame:
    """The rows ordered by the interleaved bits of the columns' ranks. A rank is one of up to 64 ranges with the same
    number of rows each."""
    from pyspark.sql import functions as F

    keys = [_key(column) for column in by]
    sample = [tuple(row) for row in _sample(unobserved, keys, records, pieces)]
    bits = max(1, min(_Z_BITS, _LONG_BITS // len(keys)))
    column_cuts = []
    for index in range(len(keys)):
        column = [row[index] for row in sample]
        ordered = sorted(_plain(v) for v in column if v is not None and not _is_nan(v))
        column_cuts.append(_cuts([(v,) for v in ordered], 1 << bits))
    ranks = [
        _range_number([key], cuts, list(range(len(cuts) + 1)))
        for key, cuts in zip(keys, column_cuts, strict=True)
    ]
    z_column = free_name(rows.columns)
    rows_with_z = rows.withColumn(z_column, _interleaved_column(ranks, bits))
    values = sorted(
        _interleaved(
            [_rank(value, [cut[0] for cut in cuts]) for value, cuts in zip(row, column_cuts, strict=True)],
            bits,
        )
        for row in sample
    )
    key = _Key(F.col(z_column))
    ranges = _partition_by_range(rows_with_z, [key], _cuts([(v,) for v in values], pieces))
    return ranges.sortWithinPartitions(z_column, *(_ordering(c) for c in by))


def free_name(columns: Sequence[str]) -> str:
    """A column name that differs from all of these. Spark ignores letter case in column names."""
    lower_names = {c.lower() for c in columns}
    candidates = (f"{_Z_COLUMN}{n or ''}" for n in range(len(lower_names) + 1))
    return next(name for name in candidates if name not in lower_names)


def _key(column: SortColumn) -> _Key:
    """The key of a sort column. Dates and times become integers, because Python's calendar is smaller than
    Iceberg's."""
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
    return _in_order(value, column)


def _in_order(value: Column, by: SortColumn | _Key) -> Column:
    if by.descending:
        return value.desc_nulls_last() if by.nulls_last else value.desc_nulls_first()
    return value.asc_nulls_last() if by.nulls_last else value.asc_nulls_first()


# the ranges


def _sample(rows: DataFrame, keys: Sequence[_Key], records: int, pieces: int) -> list[Any]:
    """The ordered key tuples of a sample of the rows. The sample reads only the keys' columns."""
    from pyspark.sql import functions as F

    size = max(_SAMPLE_AT_LEAST, _SAMPLE_PER_PIECE * pieces)
    sample = rows.select(*(k.value.alias(f"k{n}") for n, k in enumerate(keys)))
    if records > size:
        sample = sample.sample(fraction=size / records, seed=_SEED)
    orders = [_in_order(F.col(f"k{n}"), key) for n, key in enumerate(keys)]
    # One partition: a sort of several partitions would read the sample again, to find their ranges.
    return sample.repartition(1).sortWithinPartitions(*orders).collect()


def _cuts(ordered_keys: Sequence[Sequence[Any]], pieces: int) -> list[tuple[Any, ...]]:
    """The first key of every piece after the first. There are fewer cuts if many rows have the same key."""
    if not ordered_keys:
        return []
    cuts = (tuple(map(_plain, ordered_keys[len(ordered_keys) * n // pieces])) for n in range(1, pieces))
    first = tuple(map(_plain, ordered_keys[0]))
    return [cut for cut in dict.fromkeys(cuts) if cut != first]


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


# the range of a row


def _partition_by_range(rows: DataFrame, keys: Sequence[_Key], cuts: Sequence[tuple[Any, ...]]) -> DataFrame:
    """The rows in Spark partitions, one partition per range of keys. There is one more range than cuts."""
    if not cuts:
        return rows.repartition(1)
    count = len(cuts) + 1
    return rows.repartition(count, _range_number(keys, cuts, _numbers_by_partition(rows.sparkSession, count)))


def _numbers_by_partition(spark: SparkSession, count: int) -> list[int]:
    """For each of `count` partitions, a number that Spark's hash partitioning assigns to it."""
    from pyspark.sql import functions as F

    number_of: dict[int, int] = {}
    start = 0
    while len(number_of) < count:
        numbers = spark.range(start, start + 64 * count, 1, 1)
        for number, partition in numbers.select("id", F.expr(f"pmod(hash(id), {count})")).collect():
            number_of.setdefault(partition, number)
        start += 64 * count
    return [number_of[partition] for partition in range(count)]


def _range_number(keys: Sequence[_Key], cuts: Sequence[tuple[Any, ...]], numbers: Sequence[int]) -> Column:
    """The number of a row's range, by a binary search among the cuts. A row is in range n if n cuts are not after
    its key; `numbers[n]` is that range's number."""
    from pyspark.sql import functions as F

    if not cuts:
        return F.lit(numbers[0]).cast("bigint")
    middle = len(cuts) // 2
    lower = _range_number(keys, cuts[:middle], numbers[: middle + 1])
    upper = _range_number(keys, cuts[middle + 1 :], numbers[middle + 1 :])
    return F.when(_is_before(keys, cuts[middle]), lower).otherwise(upper)


def _is_before(keys: Sequence[_Key], cut: Sequence[Any]) -> Column:
    """Whether a row's key comes before the cut's key. Never NULL."""
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
    """As `_range_number`, with numbers from 0, for a value in Python. NULL comes first and NaN last."""
    if value is None:
        return 0
    return len(cuts) if _is_nan(value) else bisect_right(cuts, _plain(value))


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _interleaved(ranks: Sequence[int], bits: int) -> int:
    return sum(
        (rank >> bit & 1) << (bit * len(ranks) + n) for bit in range(bits) for n, rank in enumerate(ranks)
    )


def _interleaved_column(ranks: Sequence[Column], bits: int) -> Column:
    from pyspark.sql import functions as F

    value = F.lit(0).cast("bigint")
    for bit in range(bits):
        for n, rank in enumerate(ranks):
            rank_bit = F.shiftright(rank, bit).bitwiseAND(F.lit(1).cast("bigint"))
            value = value + F.shiftleft(rank_bit, bit * len(ranks) + n)
    return value
