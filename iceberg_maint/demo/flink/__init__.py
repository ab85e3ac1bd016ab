"""The second demo: Flink upserts two tables without a pause, and they are kept healthy meanwhile."""
