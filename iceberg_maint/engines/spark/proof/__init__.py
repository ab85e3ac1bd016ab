"""Proves that the written rows are the rows that were read."""
