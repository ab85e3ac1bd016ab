"""Engines: what writes, commits and verifies the batches of a plan."""
