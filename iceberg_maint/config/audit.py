"""The audit log: its checked location."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from iceberg_maint.config.document import AuditSection
from iceberg_maint.config.secrets import Resolver
from iceberg_maint.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """Where the audit log is. `properties` are those of PyIceberg's FileIO. With `required` a run that cannot write
    its intent is refused. Entries older than `keep_days` are removed; None keeps all."""

    location: str
    properties: Mapping[str, str] = field(repr=False)
    required: bool
    keep_days: int | None

    @property
    def local_path(self) -> str | None:
        """The folder of a `file:` location; None for other stores."""
        if not self.location.startswith("file:"):
            return None
        return "/" + self.location.removeprefix("file:").lstrip("/")


def audit_config(section: AuditSection, resolver: Resolver) -> AuditConfig:
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
    return AuditConfig(location, properties, section.required, section.keep_days)
