"""Ledgers on both databases, each test on an empty one, and values to put into them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from iceberg_maint.ledger.ledger import sql_ledger
from iceberg_maint.ports.ledger import Ledger
from iceberg_maint.ports.stored import Lease
from iceberg_maint_tests.support.ledger.values import NAME, UUID

_names = itertools.count()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a ledger lies: opens it as another process would, and reaches behind its back."""

    url: str

    def open(self) -> Ledger:
        return sql_ledger(self.url)

    def sql(self, statement: str, **values: object) -> list[tuple[object, ...]]:
        engine = create_engine(self.url)
        with engine.begin() as conn:
            result = conn.execute(text(statement), values)
            rows = [tuple(row) for row in result] if result.returns_rows else []
        engine.dispose()
        return rows

    def expire(self, lease: Lease) -> None:
        """The lease's time runs out, without waiting for it."""
        self.sql(
            "UPDATE icm_lease SET expires_ms = expires_ms - 1000000000 WHERE table_uuid = :uuid",
            uuid=lease.table_uuid,
        )

    def age(self, table: str, column: str, by_ms: int) -> None:
        """Makes all rows of a table older."""
        self.sql(f"UPDATE {table} SET {column} = {column} - {by_ms}")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        yield Place(f"sqlite:///{tmp_path / 'ledger' / 'ledger.db'}")
        return
    server = request.getfixturevalue("postgres_url")
    name = f"ledger_{next(_names)}"
    # A schema of its own costs a tenth of a database.
    admin = create_engine(server, isolation_level="AUTOCOMMIT")
    with admin.connect() as conn:
        conn.execute(text(f"CREATE SCHEMA {name}"))
    yield Place(f"{server}?options=-csearch_path%3D{name}")
    with admin.connect() as conn:
        conn.execute(text(f"DROP SCHEMA {name} CASCADE"))
    admin.dispose()


@pytest.fixture
def ledger(place: Place) -> Iterator[Ledger]:
    opened = place.open()
    yield opened
    opened.close()


@pytest.fixture
def lease(ledger: Ledger) -> Lease:
    return ledger.leases.acquire(UUID, NAME, "run-1", 60, 0)
