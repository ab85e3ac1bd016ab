"""The real definitions, whose sensors look every few seconds: a run of the kills is to take minutes."""

from iceberg_maint.defs import lost_runs, sensors

sensors.AUTOMATION_INTERVAL_SECONDS = 5
sensors.CHANGES_INTERVAL_SECONDS = 5
lost_runs.LOST_RUNS_INTERVAL_SECONDS = 5

from iceberg_maint.definitions import defs  # noqa: E402 - built with these intervals

__all__ = ["defs"]
