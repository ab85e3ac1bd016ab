"""Audit: an append-only, hash-chained log of maintenance on disk or object storage."""
