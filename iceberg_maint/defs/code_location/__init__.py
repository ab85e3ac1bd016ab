"""The code location under a running Dagster: its configuration file, table list and reload."""
