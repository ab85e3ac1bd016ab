"""Queries for many table names or UUIDs. Each statement asks for one chunk of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, bindparam

_CHUNK = 500
"""The most values in one statement. SQLite before version 3.32 allows at most 999 parameters."""


def chunks(values: Iterable[str]) -> Iterator[list[str]]:
    """Yields the values as lists of at most `_CHUNK` values."""
    rest = iter(values)
    while chunk := list(islice(rest, _CHUNK)):
        yield chunk


def among(column: ColumnElement[Any]) -> ColumnElement[bool]:
    """The condition that the column has one of the values of a chunk, for statements that `in_chunks` runs."""
    return column.in_(bindparam("chunk", expanding=True))


def in_chunks(conn: Connection, query: Select[Any], values: Iterable[str]) -> Iterator[Row[*tuple[Any, ...]]]:
    """Yields the rows of the query, which has the condition `among`, for all values. A query that is built once costs
    less than one that is built for each table."""
    for chunk in chunks(values):
        yield from conn.execute(query, {"chunk": chunk})
