"""The fake of the ledger: the real one, on a database in this process's memory."""

from __future__ import annotations

from iceberg_maint.ledger.ledger import sql_ledger
from iceberg_maint.ports.ledger import Ledger


def memory_ledger() -> Ledger:
    """Returns an empty ledger that exists as long as the object."""
    return sql_ledger("sqlite://")
