"""The ledger: leases, batches, attempts, back-off, health and records in SQLite or PostgreSQL."""
