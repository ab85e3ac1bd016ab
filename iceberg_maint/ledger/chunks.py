"""Queries for many table names or UUIDs. Each statement asks for one chunk of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select

_CHUNK = 500
"""The most values in one statement. SQLite before version 3.32 allows at most 999 parameters."""


def chunks(values: Iterable[str]) -> Iterator[list[str]]:
    """Yields the values as lists of at most `_CHUNK` values."""
    rest = iter(values)
    while chunk := list(islice(rest, _CHUNK)):
        yield chunk


def in_chunks(
    conn: Connection, query: Select[Any], column: ColumnElement[Any], values: Iterable[str]
) -> Iterator[Row[*tuple[Any, ...]]]:
    """Yields the rows of the query in which the column has one of the values."""
    for chunk in chunks(values):
        yield from conn.execute(query.where(column.in_(chunk)))
