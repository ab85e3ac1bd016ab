"""The assets of tables and of the fleet: their checks, metadata and cards, and the runs that materialize them."""
