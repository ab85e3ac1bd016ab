"""The second demo: maintains two tables while Flink upserts them without a pause."""
