"""The entry point of Dagster for all tables. `iceberg_maint.code_location` lists its environment variables."""

import os

from iceberg_maint.code_location import definitions_from
from iceberg_maint.defs.code_location.loading import keeping_all

with keeping_all():
    defs = definitions_from(os.environ)
