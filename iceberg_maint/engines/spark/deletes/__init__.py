"""Finds, applies, converts and merges equality and position deletes."""
