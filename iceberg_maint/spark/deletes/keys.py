"""Key columns of equality deletes as Spark expressions that a plain hash join compares.

Two keys are equal when Iceberg's generic reader finds one in the set of the other
(`StructLikeSet`): NULL equals NULL, and a NULL struct is not a struct of NULLs.
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
    """One key column: its names from the top of the schema down, which of these may be NULL by
    the schema, and Spark's name of its type. `never_null`: no delete has NULL in it.
    """

    path: tuple[str, ...]
    optional: tuple[bool, ...]
    kind: str
    never_null: bool = False

    @property
    def is_optional(self) -> bool:
        """Whether the schema allows NULL for it or around it."""
        return any(self.optional)

    def column(self, depth: int | None = None) -> Column:
        """The value, or the struct around it at this depth."""
        from pyspark.sql import functions as F

        return F.col(".".join(map(quoted, self.path[:depth])))


Place = tuple[tuple[str, ...], tuple[bool, ...]]


def keys_of(schema_json: str) -> dict[int, Place]:
    """By field id, the path and the optional parts of all columns outside lists and maps."""
    return dict(_walk(json.loads(schema_json), (), ()))


def _walk(
    struct: Mapping[str, Any], path: tuple[str, ...], optional: tuple[bool, ...]
) -> Iterator[tuple[int, Place]]:
    for field in struct["fields"]:
        place = (*path, field["name"]), (*optional, not field["required"])
        yield int(field["id"]), place
        kind = field["type"]
        if isinstance(kind, dict) and kind["type"] == "struct":
            yield from _walk(kind, *place)


def key_terms(keys: Sequence[Key], *, checked: bool = False) -> list[Column]:
    """Columns `k0…` without NULL, and `nulls`, the set of what is NULL as bits, where something
    can be. Equal keys have equal terms, and no others have.

    Of a column that is never NULL the bare value is taken; `checked` ends the job where it is.
    """
    from pyspark.sql import functions as F

    terms: list[Column] = []
    flags: list[Column] = []
    for number, key in enumerate(keys):
        value = key.column()
        if key.is_optional and key.never_null:
            if checked:
                lie = F.raise_error(
                    F.lit("an equality delete has NULL keys, and its metadata says it has none")
                )
                value = F.coalesce(value, lie.cast(key.kind))
        elif key.is_optional:
            for depth, optional in enumerate(key.optional, start=1):
                if optional:
                    bit = F.lit(1 << len(flags)).cast("long")
                    flags.append(F.when(key.column(depth).isNull(), bit).otherwise(F.lit(0).cast("long")))
            value = F.coalesce(value, F.lit(_EMPTY.get(key.kind, "0")).cast(key.kind))
        terms.append(value.alias(f"k{number}"))
    if flags:
        narrow = "tinyint" if len(flags) < 8 else "smallint" if len(flags) < 16 else "long"
        nulls = reduce(lambda a, b: a.bitwiseOR(b), flags)
        terms.append(nulls.cast(narrow).alias("nulls"))
    return terms


def can_match(keys: Sequence[Key]) -> Column:
    """False where a row has NULL in a column in which no delete has."""
    from pyspark.sql import functions as F

    present = (k.column().isNotNull() for k in keys if k.is_optional and k.never_null)
    return reduce(lambda a, b: a & b, present, F.lit(True))
