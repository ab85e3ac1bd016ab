"""Health: measurements of a pinned snapshot and the thresholds they cross."""
