"""iceberg_maint keeps Apache Iceberg tables healthy, as a Dagster project."""

__version__ = "0.1.0"
