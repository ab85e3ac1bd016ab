"""The assets of tables, and the runs that materialize them."""
