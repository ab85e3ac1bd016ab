"""A project of Dagster as others have it: its own executor, resources and version of PyIceberg."""
