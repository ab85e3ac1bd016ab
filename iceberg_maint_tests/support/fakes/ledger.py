"""The fake of the ledger: the real one, on a database in this process's memory; and wrappers of its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iceberg_maint.ledger.ledger import sql_ledger
from iceberg_maint.ports.ledger import Ledger


def memory_ledger() -> Ledger:
    """Returns an empty ledger that exists as long as the object."""
    return sql_ledger("sqlite://")


PARTS = ("leases", "work", "records", "health", "registry", "attestations")


def with_parts(ledger: Ledger, wrap: Callable[[Any], Any]) -> Ledger:
    """Returns the ledger with each of its parts wrapped."""
    return Ledger(*(wrap(getattr(ledger, part)) for part in PARTS), ledger.close)
