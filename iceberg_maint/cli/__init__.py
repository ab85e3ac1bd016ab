"""The command line `iceberg-maint`."""

from iceberg_maint.cli.root import iceberg_maint, main

__all__ = ["iceberg_maint", "main"]
