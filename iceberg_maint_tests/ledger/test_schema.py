"""The schema as SQL. A schema that differs without a new version breaks the ledgers that exist.

python -m iceberg_maint_tests.ledger.test_schema > iceberg_maint_tests/ledger/schema.sql, after a step of `migrations`.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from iceberg_maint.ledger.migrations import STEPS
from iceberg_maint.ledger.schema import metadata

STATED = Path(__file__).with_name("schema.sql")


def schema_sql() -> str:
    """The statements that create the ledger on PostgreSQL, after the version."""
    dialect = postgresql.dialect()
    statements = [f"-- version {1 + len(STEPS)}"]
    for table in metadata.sorted_tables:
        statements.append(str(CreateTable(table).compile(dialect=dialect)).strip())
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        statements += [str(CreateIndex(index).compile(dialect=dialect)).strip() for index in indexes]
    return "\n\n".join(statements).replace("\t", "  ").replace(" \n", "\n") + "\n"


def test_schema_of_a_version_stays_as_it_is() -> None:
    assert schema_sql() == STATED.read_text("utf-8")


if __name__ == "__main__":
    print(schema_sql(), end="")
