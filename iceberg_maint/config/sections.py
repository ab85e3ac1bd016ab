"""Sections of the configuration: audit log, budget of the fleet, reports, telemetry."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from iceberg_maint.config.alerts import (
    checked_headers,
    checked_host,
    checked_port,
    checked_url,
    secret_reference,
)
from iceberg_maint.config.document import (
    AuditSection,
    CloudwatchSection,
    DogstatsdSection,
    FleetBudgetSection,
    OpenlineageSection,
    OtlpSection,
    PrometheusSection,
    ReportSection,
    TelemetrySection,
)
from iceberg_maint.config.secrets import Resolver
from iceberg_maint.core.decisions.fleet_budget import FleetBudget
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


_HOURS = re.compile(r"([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d")
_SECONDS = {"hour": 3600, "day": 86_400}


def fleet_budget(section: FleetBudgetSection) -> FleetBudget:
    """Returns the checked budget. CPU hours become CPU seconds. Raises
    ConfigurationError ICM-100 for a period that is neither hour nor day, a cap that is not above 0, a budget without
    a cap, and blackout hours that are no times of day."""
    if section.period not in _SECONDS:
        raise _error("period", section.period, "hour or day")
    for name in (
        "max_bytes",
        "max_cpu_hours",
        "max_commits",
        "max_wait_seconds",
    ):
        value = getattr(section, name)
        if value is not None and not 0 < value < float("inf"):
            raise _error(name, value, "a number above 0")
    for window in section.blackout_hours:
        if not _HOURS.fullmatch(window):
            raise _error("blackout_hours", window, "times of day in UTC, as HH:MM-HH:MM")
    if section.max_bytes is section.max_commits is section.max_cpu_hours is None:
        raise ConfigurationError(
            "ICM-100",
            "fleet_budget has no cap. It must have at least one.",
            "set max_bytes, max_cpu_hours or max_commits, or remove fleet_budget.",
        )
    return FleetBudget(
        period_seconds=_SECONDS[section.period],
        max_bytes=section.max_bytes,
        max_commits=section.max_commits,
        max_wait_seconds=section.max_wait_seconds,
        blackout_hours=tuple(section.blackout_hours),
        max_cpu_seconds=None if section.max_cpu_hours is None else section.max_cpu_hours * 3600,
    )


def _error(name: str, value: object, rule: str) -> ConfigurationError:
    return ConfigurationError(
        "ICM-100",
        f"fleet_budget.{name} is {value}. It must be {rule}.",
        f"set fleet_budget.{name} to {rule}.",
    )


@dataclass(frozen=True, slots=True)
class ReportConfig:
    """Prices in one currency, None where not stated. Dagster makes the report by `schedule`, a cron expression in
    UTC, and writes it to `folder`, if there is one."""

    currency: str = "USD"
    run_hour_price: float | None = None
    stored_gib_month_price: float | None = None
    folder: Path | None = None
    schedule: str = ReportSection.model_fields["schedule"].default


def report_config(section: ReportSection) -> ReportConfig:
    """Returns the checked settings. Raises ConfigurationError ICM-100 for a negative price and for a schedule that does not have five fields."""
    for name in ("run_hour_price", "stored_gib_month_price"):
        price = getattr(section, name)
        if price is not None and not 0 <= price < float("inf"):
            raise ConfigurationError(
                "ICM-100",
                f"report.{name} is {price}. It must be at least 0.",
                f"set report.{name} to a price.",
            )
    if len(section.schedule.split()) != 5:
        raise bad_schedule(section.schedule)
    folder = Path(section.folder).expanduser() if section.folder else None
    return ReportConfig(
        section.currency,
        section.run_hour_price,
        section.stored_gib_month_price,
        folder,
        section.schedule,
    )


def bad_schedule(schedule: str) -> ConfigurationError:
    """Returns the error of a schedule that is no cron expression."""
    return ConfigurationError(
        "ICM-100",
        f"report.schedule is '{schedule}'. It must be a cron expression of five fields.",
        "set it to an expression such as '0 7 * * 1', Mondays at 7 UTC.",
    )


@dataclass(frozen=True, slots=True)
class PrometheusConfig:
    """Where `telemetry serve` listens, and the Pushgateway of runs."""

    host: str
    port: int
    pushgateway: str | None


@dataclass(frozen=True, slots=True)
class OtlpConfig:
    """An OTLP receiver over HTTP."""

    endpoint: str
    headers: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class DogstatsdConfig:
    """A DogStatsD listener."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class CloudwatchConfig:
    """CloudWatch. Without a region boto3 takes that of the environment."""

    namespace: str
    region: str | None
    endpoint: str | None


@dataclass(frozen=True, slots=True)
class OpenlineageConfig:
    """An OpenLineage receiver, and the namespace of our jobs in it."""

    url: str
    api_key: str | None = field(repr=False)
    namespace: str


@dataclass(frozen=True, slots=True)
class TelemetryConfig:
    """The receivers of telemetry, and the number of tables with series of their own. A receiver that is None gets nothing."""

    max_tables: int
    prometheus: PrometheusConfig | None = None
    otlp: OtlpConfig | None = None
    dogstatsd: DogstatsdConfig | None = None
    cloudwatch: CloudwatchConfig | None = None
    openlineage: OpenlineageConfig | None = None


_MOST_TABLES = 100_000


def telemetry_config(section: TelemetrySection, resolver: Resolver) -> TelemetryConfig:
    """Returns the checked settings. Raises ConfigurationError ICM-100, ICM-118, and ICM-127 for an address that
    other machines reach."""
    if not 0 <= section.max_tables <= _MOST_TABLES:
        raise ConfigurationError(
            "ICM-100",
            f"telemetry.max_tables is {section.max_tables}. It must be from 0 to {_MOST_TABLES}.",
            f"set telemetry.max_tables to a number from 0 to {_MOST_TABLES}.",
        )
    return TelemetryConfig(
        section.max_tables,
        None if section.prometheus is None else _prometheus(section.prometheus, resolver),
        None if section.otlp is None else _otlp(section.otlp, resolver),
        None if section.dogstatsd is None else _dogstatsd(section.dogstatsd, resolver),
        None if section.cloudwatch is None else _cloudwatch(section.cloudwatch, resolver),
        None if section.openlineage is None else _openlineage(section.openlineage, resolver),
    )


def listen_address(text: str, path: str, *, allow_remote: bool) -> tuple[str, int]:
    """Returns host and port of `HOST:PORT`. Raises ConfigurationError ICM-100, and ICM-127 for a host that is not
    a loopback address unless `allow_remote` is set."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit():
        raise ConfigurationError(
            "ICM-100",
            f"{path} is '{text}'. It must have the form HOST:PORT.",
            f"set {path} to an address such as 127.0.0.1:9464.",
        )
    if not allow_remote and not is_loopback(host):
        raise ConfigurationError(
            "ICM-127",
            f"{path} is '{text}', which other machines can reach. The page names every table.",
            "listen on 127.0.0.1, or set telemetry.prometheus.allow_remote to true.",
        )
    return host, checked_port(int(port), path)


def is_loopback(host: str) -> bool:
    """Returns whether no other machine has this address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _prometheus(section: PrometheusSection, resolver: Resolver) -> PrometheusConfig:
    host, port = listen_address(
        section.listen, "telemetry.prometheus.listen", allow_remote=section.allow_remote
    )
    path = "telemetry.prometheus.pushgateway"
    gateway = None if section.pushgateway is None else checked_url(section.pushgateway, path, resolver)
    return PrometheusConfig(host, port, gateway)


def _otlp(section: OtlpSection, resolver: Resolver) -> OtlpConfig:
    headers = checked_headers(section.headers, "telemetry.otlp.headers", resolver)
    return OtlpConfig(checked_url(section.endpoint, "telemetry.otlp.endpoint", resolver), headers)


def _dogstatsd(section: DogstatsdSection, resolver: Resolver) -> DogstatsdConfig:
    host = checked_host(section.host, "telemetry.dogstatsd.host", resolver)
    return DogstatsdConfig(host, checked_port(section.port, "telemetry.dogstatsd.port"))


def _cloudwatch(section: CloudwatchSection, resolver: Resolver) -> CloudwatchConfig:
    namespace = section.namespace
    if not re.fullmatch(r"[A-Za-z0-9_.#/ -]{1,255}", namespace) or namespace.startswith("AWS/"):
        raise ConfigurationError(
            "ICM-100",
            f"telemetry.cloudwatch.namespace is '{namespace}'. It must have 1 to 255 letters, digits or '._-/#', "
            "and must not begin with AWS/.",
            "set another namespace.",
        )
    region = None if section.region is None else resolver.text(section.region, "telemetry.cloudwatch.region")
    path = "telemetry.cloudwatch.endpoint"
    endpoint = None if section.endpoint is None else checked_url(section.endpoint, path, resolver)
    return CloudwatchConfig(namespace, region, endpoint)


def _openlineage(section: OpenlineageSection, resolver: Resolver) -> OpenlineageConfig:
    path = "telemetry.openlineage.api_key"
    key = None if section.api_key is None else secret_reference(section.api_key, path, resolver)
    url = checked_url(section.url, "telemetry.openlineage.url", resolver)
    return OpenlineageConfig(url, key, section.namespace)
