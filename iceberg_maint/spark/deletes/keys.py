"""Key columns of equality deletes as Spark expressions that a plain hash join compares.

Two keys are equal if they are equal in Iceberg's generic reader (`StructLikeSet`): NULL equals NULL, and a NULL
struct does not equal a struct of NULLs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from iceberg_maint.spark.jvm.columns import quoted

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
                failure = F.raise_error(
                    F.lit("an equality delete has NULL keys, and its metadata says it has none")
                )
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
