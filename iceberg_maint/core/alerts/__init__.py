"""Alerts: the conditions that a person must know, and when they are sent and cleared."""
