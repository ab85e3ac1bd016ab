"""The audit log: its checked location."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from iceberg_maint.config.document import AuditSection
from iceberg_maint.config.secrets import Resolver
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """Where the audit log is. `properties` are those of PyIceberg's FileIO. With `required` a run that cannot write
    its intent is refused. Entries older than `keep_days` are removed; None keeps all. Entries are copied to the
    Iceberg table `table`, if there is one, by `table_schedule`, a cron expression in UTC."""

    location: str
    properties: Mapping[str, str] = field(repr=False)
    required: bool
    keep_days: int | None
    table: TableId | None
    table_schedule: str

    @property
    def local_path(self) -> str | None:
        """The folder of a `file:` location; None for other stores."""
        if not self.location.startswith("file:"):
            return None
        return "/" + self.location.removeprefix("file:").lstrip("/")


def audit_config(section: AuditSection, resolver: Resolver, catalogs: Collection[str]) -> AuditConfig:
    """Returns the checked settings. Raises ConfigurationError ICM-100, ICM-118."""
    location = resolver.text(section.location, "audit.location").rstrip("/")
    if not re.fullmatch(
        r"file:/{1,3}[^/].*|[a-z][a-z0-9+.-]*://[^/]+(/.*)?", location
    ) or ".." in location.split("/"):
        raise ConfigurationError(
            "ICM-100",
            f"audit.location is '{location}'. It must be a location with its scheme, without '..'.",
            "set audit.location to a location such as file:///var/audit or s3://bucket/audit.",
        )
    properties = {k: resolver.text(v, f"audit.properties.{k}") for k, v in section.properties.items()}
    if section.keep_days is not None and section.keep_days < 1:
        raise ConfigurationError(
            "ICM-100",
            f"audit.keep_days is {section.keep_days}. It must be at least 1.",
            "set audit.keep_days to a number of days, or remove it to keep every entry.",
        )
    if len(section.table_schedule.split()) != 5:
        raise bad_table_schedule(section.table_schedule)
    table = None if section.table is None else _table(section.table, catalogs)
    return AuditConfig(
        location, properties, section.required, section.keep_days, table, section.table_schedule
    )


def _table(name: str, catalogs: Collection[str]) -> TableId:
    catalog = name.partition(".")[0]
    if name.count(".") < 2 or not all(name.split(".")) or catalog not in catalogs:
        raise ConfigurationError(
            "ICM-100",
            f"audit.table is '{name}'. It must be catalog.namespace.table, with a catalog of this configuration: "
            f"{', '.join(sorted(catalogs))}.",
            "set audit.table to such a name, for example lake.ops.maintenance_audit.",
        )
    return TableId.parse(name)


def bad_table_schedule(schedule: str) -> ConfigurationError:
    """Returns the error of a schedule that is no cron expression."""
    return ConfigurationError(
        "ICM-100",
        f"audit.table_schedule is '{schedule}'. It must be a cron expression of five fields.",
        "set it to an expression such as '17 * * * *', once an hour.",
    )
