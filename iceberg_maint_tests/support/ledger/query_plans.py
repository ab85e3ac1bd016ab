"""What the database says about how it runs a statement: which of the tables that grow with time it reads whole."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, event

GROWING = (
    *("icm_attempt", "icm_batch", "icm_intent", "icm_try", "icm_outcome", "icm_record", "icm_recorded"),
    *("icm_health_day", "icm_partition_history", "icm_partition_missing"),
)
"""Tables with rows per operation, day or partition. The others have one row per table, machine or incident."""

_NEWEST = re.compile(r"FROM icm_record ORDER BY icm_record\.ordinal DESC\s+LIMIT")
"""The newest records of the fleet: read from the end, as many as asked for."""

Statement = tuple[str, Any]
"""The text and its parameters, as the driver gets them."""


@contextmanager
def captured() -> Iterator[Callable[[], list[Statement]]]:
    """Captures the statements of all engines in the block that read or change rows. The value returns each text once."""
    statements: dict[str, Any] = {}

    def keep(_conn: Any, _cursor: Any, text: str, parameters: Any, _context: Any, many: bool) -> None:
        if re.match(r"\s*(SELECT|DELETE|UPDATE)\b", text) and "icm_" in text:
            statements.setdefault(text, parameters[0] if many else parameters)

    event.listen(Engine, "before_cursor_execute", keep)
    try:
        yield lambda: list(statements.items())
    finally:
        event.remove(Engine, "before_cursor_execute", keep)


def whole_reads(conn: Connection, statement: Statement) -> list[str]:
    """Returns the steps of the statement's plan that read a growing table, or an index of it, whole. Where PostgreSQL has an
    index that could serve, it shows it, however small the table is."""
    text, parameters = statement
    if _NEWEST.search(text):
        return []
    if conn.dialect.name == "postgresql":
        conn.exec_driver_sql("SET enable_seqscan = off")
        lines = [row[0] for row in conn.exec_driver_sql(f"EXPLAIN {text}", parameters)]
        return [
            line.strip()
            for line, below in zip(lines, [*lines[1:], ""], strict=True)
            if (m := re.search(r"Scan.* on (icm_\w+)", line)) and m[1] in GROWING and "Cond:" not in below
        ]
    lines = [row[3] for row in conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", parameters)]
    names = {alias: table for table, alias in re.findall(r"(icm_\w+) AS (\w+)", text)}
    return [
        line for line in lines if (m := re.match(r"SCAN (\w+)", line)) and names.get(m[1], m[1]) in GROWING
    ]
