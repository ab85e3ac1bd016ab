"""The demo: maintains a lake of real writers, and compares every row before and after."""

from iceberg_maint.demo.main import Report, open_lake, run
from iceberg_maint.demo.store import StoreName

__all__ = ["Report", "StoreName", "open_lake", "run"]
