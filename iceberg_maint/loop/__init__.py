"""The loop: maintains one table from assessment to record, one batch at a time."""
