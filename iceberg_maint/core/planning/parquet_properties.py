"""Properties of a table for Parquet's writer: numbers that it does not take."""

from __future__ import annotations

from collections.abc import Mapping

_LEVEL = "write.parquet.compression-level"
_COUNTS = tuple(
    f"write.parquet.{name}"
    for name in ("row-group-size-bytes", "page-size-bytes", "page-row-limit", "dict-size-bytes")
)
_LARGEST_INT = 2**31 - 1


def wrong_number(properties: Mapping[str, str]) -> str:
    """Returns the first property that is no number which Iceberg's writer takes (`Parquet.WriteBuilder`), with its value and the
    rule, "" if there is none or the table writes another format. Arrow's writer would write pages of 0 rows without end."""
    if properties.get("write.format.default", "parquet").lower() != "parquet":
        return ""
    for name in (*_COUNTS, _LEVEL):
        least = -_LARGEST_INT if name == _LEVEL else 1
        if name in properties and not _is_number(properties[name], least):
            rule = "a whole number" if name == _LEVEL else f"a whole number from 1 to {_LARGEST_INT}"
            return f"{name} = {properties[name]}; it must be {rule}"
    return ""


def _is_number(value: str, least: int) -> bool:
    try:
        return least <= int(value) <= _LARGEST_INT
    except ValueError:
        return False
