"""The fake of the ledger: the real one, on a database in this process's memory."""

from __future__ import annotations

from iceberg_maint.ledger.ledger import SqlLedger


def memory_ledger() -> SqlLedger:
    """Returns an empty ledger that exists as long as the object."""
    return SqlLedger("sqlite://")
