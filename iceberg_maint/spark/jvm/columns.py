"""Columns as Spark names them, and those of row lineage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass

LINEAGE: Mapping[str, int] = {"_row_id": 2147483540, "_last_updated_sequence_number": 2147483539}
"""Metadata columns of format v3 with their reserved field ids (spec: Reserved Field IDs)."""


def quoted(name: str) -> str:
    """A column name as Spark takes it literally."""
    return f"`{name.replace('`', '``')}`"
