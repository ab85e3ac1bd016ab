"""PyIceberg: lists tables, pins snapshots, reads manifests. Only reads."""
