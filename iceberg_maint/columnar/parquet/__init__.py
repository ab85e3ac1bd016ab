"""Parquet's own metadata: footers, page headers, page indexes."""
