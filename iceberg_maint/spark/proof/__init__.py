"""Proof that the rows written are the rows read."""
