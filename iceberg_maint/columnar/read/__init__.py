"""Reads the live rows of data files as tables in the table's schema."""
