"""Rewrites of data files: bin-packing and sorting."""
