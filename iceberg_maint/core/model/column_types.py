"""Column types beyond those that every engine reads (spec: "Schemas and Data Types"), by the path of the column."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_COMMON = frozenset(
    "boolean int long float double date timestamp timestamptz string uuid binary".split()  # noqa: SIM905
)
_COMMON_WITH_PARAMETERS = re.compile(r"(decimal|fixed)\s*[(\[]")


def uncommon_types(schema: Mapping[str, Any]) -> dict[str, str]:
    """Returns the columns of a schema in Iceberg's JSON whose type is not a common one: path → type as
    written. Paths are Iceberg's: `s.x` of a struct, `l.element` of a list, `m.key` and `m.value` of a map."""
    return {
        path: type_name
        for path, type_name in _columns(schema, "")
        if type_name not in _COMMON and not _COMMON_WITH_PARAMETERS.match(type_name)
    }


def base_type(type_name: str) -> str:
    """Returns a type without its parameters: `geometry(srid:4326)` → `geometry`."""
    return re.split(r"[(\[]", type_name, maxsplit=1)[0].strip()


def _columns(node: Mapping[str, Any] | str, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, str):
        yield path, node
        return
    prefix = f"{path}." if path else ""
    match node["type"]:
        case "struct":
            for field in node["fields"]:
                yield from _columns(field["type"], prefix + field["name"])
        case "list":
            yield from _columns(node["element"], f"{prefix}element")
        case "map":
            yield from _columns(node["key"], f"{prefix}key")
            yield from _columns(node["value"], f"{prefix}value")
        case other:
            yield path, str(other)
