"""Key columns of equality deletes as Spark expressions that a plain hash join compares.

Two keys are equal when Iceberg's generic reader finds one in the set of the other
(`StructLikeSet`): NULL equals NULL, and a NULL struct is not a struct of NULLs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from iceberg_maint.spark.fingerprint import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column

_EMPTY = {"string": "", "binary": "", "boolean": "false", "date": "1970-01-01"}
_EMPTY |= dict.fromkeys(("timestamp", "timestamp_ntz"), "1970-01-01 00:00:00")


@dataclass(frozen=True, slots=True)
class Key:
    """One key column: its names from the top of the schema down, and which of these may be NULL."""

    path: tuple[str, ...]
    optional: tuple[bool, ...]

    def column(self, depth: int | None = None) -> Column:
        """The value, or the struct around it at this depth."""
        from pyspark.sql import functions as F

        return F.col(".".join(map(quoted, self.path[:depth])))


def keys_of(schema_json: str, field_ids: Sequence[int]) -> tuple[Key, ...]:
    """The key columns with these ids, in this order. Raises KeyError for an id that is not a
    column outside lists and maps of Iceberg's schema."""
    by_id = dict(_walk(json.loads(schema_json), (), ()))
    return tuple(by_id[i] for i in field_ids)


def _walk(
    struct: Mapping[str, Any], path: tuple[str, ...], optional: tuple[bool, ...]
) -> Iterator[tuple[int, Key]]:
    for field in struct["fields"]:
        key = Key((*path, field["name"]), (*optional, not field["required"]))
        yield int(field["id"]), key
        kind = field["type"]
        if isinstance(kind, dict) and kind["type"] == "struct":
            yield from _walk(kind, key.path, key.optional)


def key_terms(keys: Sequence[Key], types: Sequence[str]) -> list[Column]:
    """Columns `k0…` that are never NULL, and `nulls`, the set of what is NULL as bits, where
    something can be. Equal keys have equal terms, and no others have. `types` are Spark's type
    names of the keys, such as `int` or `decimal(9,2)`.
    """
    from pyspark.sql import functions as F

    terms: list[Column] = []
    flags: list[Column] = []
    for number, (key, kind) in enumerate(zip(keys, types, strict=True)):
        value = key.column()
        for depth, optional in enumerate(key.optional, start=1):
            if optional:
                bit = F.lit(1 << len(flags)).cast("long")
                flags.append(F.when(key.column(depth).isNull(), bit).otherwise(F.lit(0).cast("long")))
        if any(key.optional):
            value = F.coalesce(value, F.lit(_EMPTY.get(kind, "0")).cast(kind))
        terms.append(value.alias(f"k{number}"))
    if flags:
        nulls = flags[0]
        for flag in flags[1:]:
            nulls = nulls.bitwiseOR(flag)
        narrow = "tinyint" if len(flags) < 8 else "smallint" if len(flags) < 16 else "long"
        terms.append(nulls.cast(narrow).alias("nulls"))
    return terms
