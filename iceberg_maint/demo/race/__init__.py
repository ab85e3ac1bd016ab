"""The third demo: an upserting writer races maintenance, Iceberg's stock compaction and this project's."""
