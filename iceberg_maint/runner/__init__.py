"""The loop: maintains one table from assessment to outcome, one batch at a time."""
