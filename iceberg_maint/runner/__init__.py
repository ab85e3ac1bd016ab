"""The loop: takes a table from assessment to outcome, one batch at a time."""
