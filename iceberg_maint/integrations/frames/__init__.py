"""What the ledger stores, as pandas frames: a public interface for notebooks and exports."""

from iceberg_maint.integrations.frames.columns import COLUMNS, Column
from iceberg_maint.integrations.frames.read import batches, fleet, health, open, records  # noqa: A004 - frames.open

__all__ = ["COLUMNS", "Column", "batches", "fleet", "health", "open", "records"]
