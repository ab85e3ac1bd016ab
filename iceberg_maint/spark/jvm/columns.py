"""Column names for Spark, and the columns of row lineage."""

from __future__ import annotations

from collections.abc import Mapping

LINEAGE: Mapping[str, int] = {"_row_id": 2147483540, "_last_updated_sequence_number": 2147483539}
"""Metadata columns of format v3 with their reserved field ids (spec: Reserved Field IDs)."""


def quoted(name: str) -> str:
    """A column name in backquotes, which Spark takes literally."""
    return f"`{name.replace('`', '``')}`"
