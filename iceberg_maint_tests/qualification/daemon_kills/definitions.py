"""The real definitions, whose sensors, heartbeats and leases last seconds: a run of the kills is to take minutes."""

from iceberg_maint.defs.automation import maintenance_sensor, sensors
from iceberg_maint.defs.runs import upkeep
from iceberg_maint.loop import guards

maintenance_sensor.AUTOMATION_INTERVAL_SECONDS = 4
sensors.CHANGES_INTERVAL_SECONDS = 4
upkeep.LOST_RUNS_INTERVAL_SECONDS = 4
upkeep.SILENT_SECONDS = 12
guards.RUN_BEAT_SECONDS = 2
guards.LEASE_TTL_SECONDS = 20

from iceberg_maint.definitions import defs  # noqa: E402 - built with these intervals

__all__ = ["defs"]
