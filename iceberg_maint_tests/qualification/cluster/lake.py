"""The tables of the demo on a cluster: one of each kind of work."""

from __future__ import annotations

from iceberg_maint.demo.tables import CONTROL, TABLES

NATIVE, COLUMNAR = "flights_by_month", "lineitem"
"""The tables that the command line rewrites, by the strategy of their policy."""
HOUSEKEPT = "weather_by_day"
"""Has snapshots and manifests to clean, and gets orphans."""

_NAMES = (NATIVE, COLUMNAR, HOUSEKEPT, "flights_updates_v2", "cdc_weather", CONTROL)
LAKE = tuple(t for t in TABLES if t.name in _NAMES)
