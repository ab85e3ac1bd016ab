"""Decisions: which operation runs, waits or is refused, and why."""
