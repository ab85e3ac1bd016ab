"""Health from Spark's metadata tables, distributed."""
