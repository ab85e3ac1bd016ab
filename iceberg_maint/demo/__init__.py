"""The demo: a lake that real writers made sick, healed before your eyes, proved row for row."""

from iceberg_maint.demo.main import Report, open_lake, run

__all__ = ["Report", "open_lake", "run"]
