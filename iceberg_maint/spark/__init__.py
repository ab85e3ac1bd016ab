"""The engine: Spark sessions, the Java bridge, one module per strategy and operation."""
