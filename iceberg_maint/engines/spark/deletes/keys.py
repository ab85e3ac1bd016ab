"""Checks a batch's equality deletes before they are read.

Refuses keys that cannot be compared, and deletes that do not fit the declared memory or scratch space.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from iceberg_maint.core.planning.batch_memory import (
    FIELD_BYTES,
    DeclaredBytes,
    DoesNotFitError,
    Preflight,
    driver_bytes,
    preflight,
)
from iceberg_maint.core.planning.equality_deletes import beside_bytes
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.planning.spark_memory import default_budget_bytes, memory_of
from iceberg_maint.core.policy.data import EqualityDeletesPolicy
from iceberg_maint.engines.spark.deletes.key_files import keys_without_null
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.conversion import content_jsons, quoted
from iceberg_maint.engines.spark.scan.scan import Table
from iceberg_maint.engines.spark.session.executors import driver_memory_bytes, executor_memory
from iceberg_maint.errors import RefusedError

if TYPE_CHECKING:
    from pyspark.sql import Column

_EMPTY = {"string": "", "binary": "", "boolean": "false", "date": "1970-01-01"}
_EMPTY |= dict.fromkeys(("timestamp", "timestamp_ntz"), "1970-01-01 00:00:00")


@dataclass(frozen=True, slots=True)
class Key:
    """One key column.

    `path` are its names from the top of the schema. `optional` says which of them the schema allows to be
    NULL. `kind` is Spark's name of its type. `never_null` says that no delete has NULL in the column.
    """

    path: tuple[str, ...]
    optional: tuple[bool, ...]
    kind: str
    never_null: bool = False

    @property
    def is_optional(self) -> bool:
        """Whether the schema allows NULL for the column or for a struct that contains it."""
        return any(self.optional)

    def column(self, depth: int | None = None) -> Column:
        """The value, or the enclosing struct at this depth."""
        from pyspark.sql import functions as F

        return F.col(".".join(map(quoted, self.path[:depth])))


NULL_KEYS = "an equality delete has NULL keys, and its metadata says it has none"
"""What the join fails with."""
Place = tuple[tuple[str, ...], tuple[bool, ...]]


def keys_of(schema_json: str) -> dict[int, Place]:
    """The path and the optional parts of every column outside lists and maps, by field id."""
    return dict(_walk(json.loads(schema_json), (), ()))


def _walk(
    struct: Mapping[str, Any], path: tuple[str, ...], optional: tuple[bool, ...]
) -> Iterator[tuple[int, Place]]:
    for field in struct["fields"]:
        place = (*path, field["name"]), (*optional, not field["required"])
        yield int(field["id"]), place
        field_type = field["type"]
        if isinstance(field_type, dict) and field_type["type"] == "struct":
            yield from _walk(field_type, *place)


def key_terms(keys: Sequence[Key], *, checked: bool = False) -> list[Column]:
    """Columns `k0…` without NULL, and `nulls`, a bit set of the NULL parts, if any part can be NULL. Two keys
    are equal if and only if their terms are equal.

    The term of a column that is never NULL is its value. With `checked` the job fails if that column is NULL.
    """
    from pyspark.sql import functions as F

    terms: list[Column] = []
    flags: list[Column] = []
    for number, key in enumerate(keys):
        value = key.column()
        if key.is_optional and key.never_null:
            if checked:
                failure = F.raise_error(F.lit(NULL_KEYS))
                value = F.coalesce(value, failure.cast(key.kind))
        elif key.is_optional:
            for depth, optional in enumerate(key.optional, start=1):
                if optional:
                    bit = F.lit(1 << len(flags)).cast("long")
                    flags.append(F.when(key.column(depth).isNull(), bit).otherwise(F.lit(0).cast("long")))
            value = F.coalesce(value, F.lit(_EMPTY.get(key.kind, "0")).cast(key.kind))
        terms.append(value.alias(f"k{number}"))
    if flags:
        nulls = reduce(lambda a, b: a.bitwiseOR(b), flags)
        terms.append(nulls.cast(bit_set_type(len(flags))).alias("nulls"))
    return terms


def bit_set_type(bits: int) -> str:
    """The narrowest type that holds so many bits and does not need its sign bit."""
    return "tinyint" if bits < 8 else "smallint" if bits < 16 else "long"


def can_match(keys: Sequence[Key]) -> Column:
    """Whether a delete can match a row: false if the row has NULL in a column in which no delete has NULL."""
    from pyspark.sql import functions as F

    present = (k.column().isNotNull() for k in keys if k.is_optional and k.never_null)
    return reduce(lambda a, b: a & b, present, F.lit(True))


_UNCOMPARABLE = frozenset({"float", "double"})
"""Iceberg allows no equality deletes by these types (spec: Equality Delete Files): NaN and -0.0 have several forms."""

_SETTINGS = {
    "memory": "equality_deletes.memory",
    "scratch": "equality_deletes.scratch",
    "driver memory": "spark.driver.memory",
}


def check_keys(bridge: Bridge, table: Any, batch: Batch) -> None:
    """Raises RefusedError ICM-119 for an equality delete by a column that was dropped, has a
    floating-point type, or is inside a list or map. The error names the file and the column.
    """
    schema = table.schema()
    by_keys = {d.equality_ids: d.path for d in batch.equality_deletes}
    parents = bridge.iceberg.types.TypeUtil.indexParents(schema.asStruct()) if by_keys else {}
    for ids, path in by_keys.items():
        for field_id in ids:
            fault = _fault(table, schema, parents, field_id)
            if fault:
                raise RefusedError(
                    "ICM-119",
                    f"{batch.table}: {path} deletes rows by {fault}",
                    "have the deletes applied by the engine that wrote them.",
                )


def _fault(table: Any, schema: Any, parents: Any, field_id: int) -> str | None:
    field = schema.findField(field_id)
    if field is None:
        return f"column {_former_name(table, field_id)}, which was dropped"
    name, field_type = schema.findColumnName(field_id), field.type()
    if not field_type.isPrimitiveType() or str(field_type.toString()) in _UNCOMPARABLE:
        return f"column {name} of type {field_type.toString()}"
    parent_id = parents.get(field_id)
    while parent_id is not None:
        parent_type = schema.findField(parent_id).type()
        if not parent_type.isStructType():
            return f"column {name}, which is inside a {'list' if parent_type.isListType() else 'map'}"
        parent_id = parents.get(parent_id)
    return None


def _former_name(table: Any, field_id: int) -> str:
    names = (table.schemas()[i].findColumnName(field_id) for i in sorted(table.schemas(), reverse=True))
    return str(next((n for n in names if n is not None), f"number {field_id}"))


def preflight_of(
    bridge: Bridge, table: Table, batch: Batch, policy: EqualityDeletesPolicy, deletes: Sequence[Any]
) -> Preflight | None:
    """How the batch's equality deletes (Java DeleteFiles) are applied within the memory that policy declares.

    The estimate comes from metadata. None if there is nothing to apply. Raises RefusedError ICM-124 with the
    required and the declared number of bytes.
    """
    if not (batch.equality_deletes and batch.groups):
        return None
    need = memory_of(batch)
    if need is None:
        raise ValueError(f"batch {batch.batch_id} does not say how much memory its equality deletes need")
    executor = executor_memory(bridge)
    memory_bytes = default_budget_bytes(executor) if policy.memory is None else policy.memory
    try:
        estimate = preflight(
            need,
            DeclaredBytes(
                memory_bytes=memory_bytes,
                scratch_bytes=policy.scratch,
                slots=executor.slots,
                page_bytes=executor.page_bytes,
                beside_bytes=_beside_bytes(bridge, table, batch, deletes),
                driver_heap_bytes=driver_memory_bytes(bridge, 0),
            ),
        )
        files = batch.input_files + len(batch.equality_deletes)
        needed_bytes = driver_bytes(files, need.rows)
        declared_bytes = driver_memory_bytes(bridge, estimate.estimated_bytes)
        if needed_bytes > declared_bytes:
            raise DoesNotFitError("driver memory", needed_bytes, declared_bytes)
    except DoesNotFitError as why:
        raise RefusedError(
            "ICM-124",
            f"{batch.table}: applying {len(batch.equality_deletes)} equality delete files needs "
            f"{why.needed_bytes} bytes of {why.resource}, {why.declared_bytes} are declared",
            f"raise {_SETTINGS[why.resource]}, or take on less per batch (windows.max_partitions_per_batch, "
            "windows.max_files_per_batch).",
        ) from why
    return estimate


def _beside_bytes(bridge: Bridge, table: Table, batch: Batch, deletes: Sequence[Any]) -> int:
    """The bytes of a key's row in the join in addition to the key: the set of NULL parts, if any key may be NULL,
    and the scope, if there are several (`membership`)."""
    schema = keys_of(table.schema_json)
    widest = max(beside_bytes(table.types[i] for i in d.equality_ids) for d in batch.equality_deletes)
    scopes = {(d.spec_id, d.partition) for d in batch.equality_deletes if not d.everywhere}
    contents = [json.loads(text) for text in content_jsons(bridge, table.java, deletes)]
    with_null = any(any(schema[i][1]) for c in contents for i in {*c["equality-ids"]} - keys_without_null(c))
    return widest + FIELD_BYTES * ((len(scopes) > 1) + with_null)
