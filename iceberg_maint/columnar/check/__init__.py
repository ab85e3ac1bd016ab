"""Checks an output file, read back from storage, against its rows."""
