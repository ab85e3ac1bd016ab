"""Rewrites data files: bin-packing and sorting."""
