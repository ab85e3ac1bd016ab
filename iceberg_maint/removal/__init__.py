"""Removal of orphan files in two phases: scan and trash, then, after a retention, sweep or restore."""
