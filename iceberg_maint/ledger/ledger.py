"""The ledger port on one database."""

from __future__ import annotations

from iceberg_maint.ledger.attempts import SqlWork
from iceberg_maint.ledger.attestations import SqlAttestations
from iceberg_maint.ledger.database import Database
from iceberg_maint.ledger.leases import SqlLeases
from iceberg_maint.ledger.records import SqlRecords
from iceberg_maint.ledger.registry import SqlRegistry
from iceberg_maint.ledger.table_health import SqlHealth
from iceberg_maint.ports.ledger import Ledger


def sql_ledger(url: str, *, read_only: bool = False) -> Ledger:
    """Returns the ledger in the SQLite or PostgreSQL database at `url`.

    Nothing is opened, created or migrated before the first call. Threads may share it. Raises
    ConfigurationError ICM-100 for another kind of URL and, from the first call, ICM-128 if the database
    cannot be used; OutOfOrderError for calls that break the order of a batch's rows.
    With `read_only` nothing is created, migrated or written.
    """
    database = Database(url, read_only=read_only)
    return Ledger(
        SqlLeases(database),
        SqlWork(database),
        SqlRecords(database),
        SqlHealth(database),
        SqlRegistry(database),
        SqlAttestations(database),
        database.close,
    )
