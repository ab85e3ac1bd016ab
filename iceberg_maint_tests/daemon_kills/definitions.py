"""The real definitions, whose sensors, heartbeats and leases last seconds: a run of the kills is to take minutes."""

from iceberg_maint.defs import lost_runs, maintenance_sensor, sensors
from iceberg_maint.runner import lease

maintenance_sensor.AUTOMATION_INTERVAL_SECONDS = 4
sensors.CHANGES_INTERVAL_SECONDS = 4
lost_runs.LOST_RUNS_INTERVAL_SECONDS = 4
lost_runs.SILENT_SECONDS = 12
lease.RUN_BEAT_SECONDS = 2
lease.LEASE_TTL_SECONDS = 20

from iceberg_maint.definitions import defs  # noqa: E402 - built with these intervals

__all__ = ["defs"]
