"""The demo's second code location: the job that keeps making the lake sick."""

import os

from iceberg_maint.demo.ingest import ingest
from iceberg_maint.demo.loader import build_loader

CRON = "*/3 * * * *"

defs = build_loader(
    "demo_ingest",
    lambda: ingest(os.environ),
    CRON,
    "Appends another day of flights and weather in small files, so that there is something to heal.",
)
