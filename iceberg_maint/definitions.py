"""The entry point of Dagster for all tables. `iceberg_maint.code_location` lists its environment variables."""

import os

from iceberg_maint.code_location import process_definitions

defs = process_definitions(os.environ)
