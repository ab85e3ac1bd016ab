"""Equality and position deletes: found, applied, converted, merged."""
