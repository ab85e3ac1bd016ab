"""Attempts at a batch: how they end, those on a whole table, and those that an engine elsewhere makes."""
