"""The demo: maintains a lake of real writers, and compares every row before and after."""

from iceberg_maint.demo.main import Report, open_lake, run

__all__ = ["Report", "open_lake", "run"]
