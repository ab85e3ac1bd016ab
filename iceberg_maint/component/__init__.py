"""Maintenance of Iceberg tables as a component of any project of Dagster. The work runs in an environment of its own."""

from iceberg_maint.component.build_defs import Options, build_iceberg_maintenance_defs
from iceberg_maint.component.environment import Environment
from iceberg_maint.component.iceberg_component import IcebergMaintenanceComponent
from iceberg_maint.component.launch import by_client, in_subprocess

__all__ = [
    "Environment",
    "IcebergMaintenanceComponent",
    "Options",
    "build_iceberg_maintenance_defs",
    "by_client",
    "in_subprocess",
]
