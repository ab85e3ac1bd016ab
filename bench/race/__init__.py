"""The third demo: maintenance beside an upserting writer, by Iceberg's stock compaction and by this project."""
