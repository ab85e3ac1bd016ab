"""Rewrites Parquet data files of Iceberg tables with Arrow: one task writes one output file and proves it."""
