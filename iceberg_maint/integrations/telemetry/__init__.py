"""Telemetry: the numbers of runs and tables for Prometheus, OTLP, DogStatsD and CloudWatch, and events for OpenLineage.

Each receiver is made when its first samples are sent.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

from iceberg_maint.config import Config, redact
from iceberg_maint.config.sections import CloudwatchConfig, DogstatsdConfig, OtlpConfig, TelemetryConfig
from iceberg_maint.core.outcomes.record import Record
from iceberg_maint.errors import ConfigurationError
from iceberg_maint.integrations.telemetry.delivery import Channel, Delivery, Exporter, sample_channel
from iceberg_maint.integrations.telemetry.samples import LedgerTotals, TableLabels
from iceberg_maint.integrations.telemetry.series import Sample
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.record import stored_observation
from iceberg_maint.ports.observers import NO_TELEMETRY, Intent, Telemetry
from iceberg_maint.wiring.integrations import Integration

EXTRAS = {
    "prometheus": "prometheus-client",
    "otlp": "opentelemetry-exporter-otlp-proto-http",
    "dogstatsd": "datadog",
    "cloudwatch": "boto3",
    "openlineage": "openlineage-python",
}
"""The package of each receiver's client, by the receiver, which is also the name of the extra."""
TIMEOUT_SECONDS = 5.0
"""The longest time for one request, and the longest wait for all receivers at the end of the program."""
QUEUE_SIZE = 1000
"""Operations and observations that wait for one receiver."""


def telemetry(program: Config) -> Telemetry:
    """The telemetry to the configured receivers. Opens no connection and starts no thread. At the end of the
    process it waits up to `TIMEOUT_SECONDS` for the receivers. Raises ConfigurationError ICM-142."""
    config = program.telemetry
    if config is None:
        return NO_TELEMETRY

    def masked(text: str) -> str:
        return redact(text, program.secrets)

    makers = _makers(config)
    lineage = _lineage(config, masked)
    if not makers and lineage is None:
        return NO_TELEMETRY
    channels = [sample_channel(name, make, QUEUE_SIZE, masked) for name, make in makers.items()]
    delivery = Delivery(channels, TableLabels(config.max_tables), TIMEOUT_SECONDS, lineage)
    atexit.register(delivery.close)
    return delivery


def require_client(receiver: str) -> None:
    """Raises ConfigurationError ICM-142 if the client library of a receiver is not installed."""
    package = EXTRAS[receiver]
    try:
        version(package)
    except PackageNotFoundError:
        raise ConfigurationError(
            "ICM-142",
            f"telemetry.{receiver} needs the package {package}, which is not installed.",
            f"run: pip install 'iceberg-maint[{receiver}]', or remove telemetry.{receiver}.",
        ) from None


def _makers(config: TelemetryConfig) -> dict[str, Callable[[], Exporter[Sample]]]:
    makers: dict[str, Callable[[], Exporter[Sample]]] = {}
    if config.prometheus is not None:
        require_client("prometheus")
        gateway = config.prometheus.pushgateway
        if gateway is not None:
            makers["pushgateway"] = lambda: _pushgateway(gateway)
    if (otlp := config.otlp) is not None:
        require_client("otlp")
        makers["otlp"] = lambda: _otlp(otlp)
    if (dogstatsd := config.dogstatsd) is not None:
        require_client("dogstatsd")
        makers["dogstatsd"] = lambda: _dogstatsd(dogstatsd)
    if (cloudwatch := config.cloudwatch) is not None:
        require_client("cloudwatch")
        makers["cloudwatch"] = lambda: _cloudwatch(cloudwatch)
    return makers


def _lineage(config: TelemetryConfig, masked: Callable[[str], str]) -> Channel[Intent | Record] | None:
    receiver = config.openlineage
    if receiver is None:
        return None
    require_client("openlineage")

    def make() -> Exporter[Intent | Record]:
        from iceberg_maint.integrations.telemetry.lineage import OpenLineage

        return OpenLineage(receiver.url, receiver.api_key, receiver.namespace, TIMEOUT_SECONDS)

    return Channel("openlineage", make, QUEUE_SIZE, masked)


def _pushgateway(url: str) -> Exporter[Sample]:
    from iceberg_maint.integrations.telemetry.prometheus import Pushgateway

    return Pushgateway(url, TIMEOUT_SECONDS)


def _otlp(config: OtlpConfig) -> Exporter[Sample]:
    from iceberg_maint.integrations.telemetry.push import Otlp

    return Otlp(config.endpoint, config.headers, TIMEOUT_SECONDS)


def _dogstatsd(config: DogstatsdConfig) -> Exporter[Sample]:
    from iceberg_maint.integrations.telemetry.push import Dogstatsd

    return Dogstatsd(config.host, config.port, TIMEOUT_SECONDS)


def _cloudwatch(config: CloudwatchConfig) -> Exporter[Sample]:
    from iceberg_maint.integrations.telemetry.push import Cloudwatch

    return Cloudwatch(config.namespace, config.region, config.endpoint, TIMEOUT_SECONDS)


def ledger_totals(context: Context, max_tables: int) -> LedgerTotals:
    """The metrics of the fleet, from the ledger of this context."""
    return LedgerTotals(
        context.ledger,
        lambda table: stored_observation(table, context),
        TableLabels(max_tables),
        context.clock.monotonic_seconds,
    )


INTEGRATION = Integration(telemetry=telemetry)
