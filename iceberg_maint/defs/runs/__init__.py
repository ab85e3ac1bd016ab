"""Runs of Dagster over tables."""
