"""Telemetry: the checked settings of the receivers of metrics."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from iceberg_maint.config.alerts import (
    checked_headers,
    checked_host,
    checked_port,
    checked_url,
    secret_reference,
)
from iceberg_maint.config.document import (
    CloudwatchSection,
    DogstatsdSection,
    OpenlineageSection,
    OtlpSection,
    PrometheusSection,
    TelemetrySection,
)
from iceberg_maint.config.secrets import Resolver
from iceberg_maint.errors import ConfigurationError


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
    """The receivers and the limits of telemetry. A receiver that is None gets nothing."""

    max_tables: int
    queue_size: int
    timeout_seconds: float
    flush_seconds: float
    prometheus: PrometheusConfig | None = None
    otlp: OtlpConfig | None = None
    dogstatsd: DogstatsdConfig | None = None
    cloudwatch: CloudwatchConfig | None = None
    openlineage: OpenlineageConfig | None = None


_LIMITS: dict[str, tuple[float, float]] = {
    "max_tables": (0, 100_000),
    "queue_size": (1, 100_000),
    "timeout_seconds": (0.1, 60),
    "flush_seconds": (0, 60),
}


def telemetry_config(section: TelemetrySection, resolver: Resolver) -> TelemetryConfig:
    """Returns the checked settings. Raises ConfigurationError ICM-100, ICM-118, and ICM-127 for an address that
    other machines reach."""
    for name, (least, most) in _LIMITS.items():
        value = getattr(section, name)
        if not least <= value <= most:
            raise ConfigurationError(
                "ICM-100",
                f"telemetry.{name} is {value}. It must be from {least} to {most}.",
                f"set telemetry.{name} to a number from {least} to {most}.",
            )
    return TelemetryConfig(
        section.max_tables,
        section.queue_size,
        section.timeout_seconds,
        section.flush_seconds,
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
    if not allow_remote and not _is_loopback(host):
        raise ConfigurationError(
            "ICM-127",
            f"{path} is '{text}', which other machines can reach. The page names every table.",
            "listen on 127.0.0.1, or set telemetry.prometheus.allow_remote to true.",
        )
    return host, checked_port(int(port), path)


def _is_loopback(host: str) -> bool:
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
