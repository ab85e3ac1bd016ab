"""The demo's second code location: the job that adds small files to the lake."""

import os

from iceberg_maint.demo.ingest import build_loader, ingest

CRON = "*/3 * * * *"

defs = build_loader(
    "demo_ingest",
    lambda: ingest(os.environ),
    CRON,
    "Appends another day of flights and weather in small files, so that maintenance becomes due.",
)
