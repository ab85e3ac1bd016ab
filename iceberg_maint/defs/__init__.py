"""The Dagster layer. Dagster decides when to maintain; `core` decides what to do."""
