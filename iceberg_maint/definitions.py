"""The entry point of Dagster for all tables. `iceberg_maint.defs.load_definitions` lists its environment variables."""

import os

from iceberg_maint.defs.load_definitions import process_definitions

defs = process_definitions(os.environ)
