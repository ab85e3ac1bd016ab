"""Unsupported column types and properties: whether an operation on data can read the rows of a table, and write them.

Each way to read rows has the set of the uncommon types that it reads. An operation on data is refused only if no way
reads every column. Manifests, snapshots and orphan files need no row.
"""

from __future__ import annotations

from collections.abc import Mapping

from iceberg_maint.core.model.column_types import base_type
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation
from iceberg_maint.core.model.reasons import Reason, Verdict
from iceberg_maint.core.policy.data import RewriteStrategy

RowTypes = tuple[frozenset[str], ...]
"""The uncommon types that each way to read rows reads (see `core.model.column_types`)."""
SPARK_4: RowTypes = (frozenset({"variant", "unknown"}),)
"""Rows read by Spark 4 with Iceberg 1.12 (docs/design/decisions/rewrite-types.md)."""
SPARK_3: RowTypes = (frozenset(),)
"""Rows read by Spark 3.5 with Iceberg 1.12."""
COLUMNAR_TYPES = frozenset({"time", "timestamp_ns", "timestamptz_ns"})
"""The uncommon types that the strategy `columnar` reads."""
_NAMED = 5


def row_types(spark_version: str) -> RowTypes:
    """Returns the types that operations on data read with this version of Spark."""
    return SPARK_3 if spark_version.startswith("3.") else SPARK_4


def row_readers(operation: Operation, strategy: RewriteStrategy, native: RowTypes) -> RowTypes:
    """Returns the ways in which an operation may read rows. `native` are those of Spark. Only `rewrite_data_files`
    reads without Spark, unless the policy forbids it."""
    if operation is not Operation.REWRITE_DATA_FILES or strategy is RewriteStrategy.NATIVE:
        return native
    return (*native, COLUMNAR_TYPES)


def unsupported_columns(types: Mapping[str, str], readers: RowTypes) -> dict[str, str]:
    """Returns path → type of the columns that keep the table's rows from being read, those of the reader that
    comes nearest; none if one reader reads all columns."""
    unread = [
        {path: kind for path, kind in types.items() if base_type(kind) not in reader} for reader in readers
    ]
    return min(unread, key=len, default=dict(types))


def column_list(columns: Mapping[str, str]) -> str:
    """Returns columns as text: `at (time), s.x (timestamp_ns)`."""
    named = [f"{path} ({kind})" for path, kind in sorted(columns.items())[:_NAMED]]
    others = len(columns) - len(named)
    return ", ".join(named) + (f" and {others} more" if others else "")


def property_stop(operation: Operation, wrong_property: str) -> tuple[Verdict, Reason, dict[str, str]] | None:
    """Returns the stop of a due rewrite of data files by a property of the table that no Parquet writer takes."""
    if operation is not Operation.REWRITE_DATA_FILES or not wrong_property:
        return None
    return Verdict.REFUSE, Reason.WRITER_PROPERTY, {"property": wrong_property}


def type_stop(
    operation: Operation, types: Mapping[str, str], readers: RowTypes
) -> tuple[Verdict, Reason, dict[str, str]] | None:
    """Returns the stop of a due operation on data whose rows nothing reads. Its evidence says if `columnar`, which the operation
    or the policy does not use, would read them."""
    if operation not in DATA_OPERATIONS:
        return None
    columns = unsupported_columns(types, readers)
    if not columns:
        return None
    evidence = {"columns": column_list(columns)}
    if not unsupported_columns(types, (*readers, COLUMNAR_TYPES)):
        evidence["read_by"] = "columnar"
    return Verdict.REFUSE, Reason.UNSUPPORTED_TYPE, evidence
