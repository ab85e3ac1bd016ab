"""The ledger's fake: the real one, on a database that lives in this process's memory."""

from __future__ import annotations

from iceberg_maint.ledger.ledger import SqlLedger


def memory_ledger() -> SqlLedger:
    """An empty ledger that is gone with the object."""
    return SqlLedger("sqlite://")
