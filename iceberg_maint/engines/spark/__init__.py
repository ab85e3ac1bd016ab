"""The Spark engine: sessions, the Java bridge, and one module per strategy and operation."""
