"""Policy: what a table's owner wants, as values."""
