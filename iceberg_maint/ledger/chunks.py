"""Queries for many tables: one statement for each chunk of their names or UUIDs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select

_CHUNK = 500
"""Values in one statement. SQLite allows 999 parameters before version 3.32."""


def chunks(values: Iterable[str]) -> Iterator[list[str]]:
    """Yields the values in lists of limited length."""
    rest = iter(values)
    while chunk := list(islice(rest, _CHUNK)):
        yield chunk


def in_chunks(
    conn: Connection, query: Select[Any], column: ColumnElement[Any], values: Iterable[str]
) -> Iterator[Row[*tuple[Any, ...]]]:
    """Yields the rows of the query in which the column has one of the values."""
    for chunk in chunks(values):
        yield from conn.execute(query.where(column.in_(chunk)))
