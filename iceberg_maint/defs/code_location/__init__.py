"""The code location of a running Dagster: its configuration file, table list and reload."""
