"""The Dagster layer, thin: when to maintain is Dagster's; what to do is decided in `core`."""
