"""Receivers to which the numbers are sent: OTLP, a Datadog agent and CloudWatch."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from iceberg_maint import __version__
from iceberg_maint.integrations.telemetry.series import DURATION_BUCKETS_SECONDS, Kind, Sample, Series, Unit

MAX_DATUMS = 1000
"""Most metrics in one request."""
_UNITS = {Unit.COUNT: "Count", Unit.BYTES: "Bytes", Unit.SECONDS: "Seconds"}
_OTLP_UNITS = {Unit.EPOCH: "s", Unit.RATIO: "1"}
_OTLP_CLIENT = "opentelemetry.exporter.otlp.proto.http.metric_exporter"


class Otlp:
    """Sends the numbers to an OTLP receiver over HTTP, as instruments of OpenTelemetry. Counters are cumulative from the start
    of the process, which has its own `service.instance.id`."""

    is_cumulative = True

    def __init__(self, endpoint: str, headers: Mapping[str, str], timeout_seconds: float) -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        from opentelemetry.sdk.resources import Resource

        # The client logs every try of a failed export; a channel logs the first one.
        logging.getLogger(_OTLP_CLIENT).setLevel(logging.CRITICAL)
        self._timeout_ms = timeout_seconds * 1000
        self._exporter = OTLPMetricExporter(endpoint=endpoint, headers=dict(headers), timeout=timeout_seconds)
        self._reader = InMemoryMetricReader(
            self._exporter._preferred_temporality,  # noqa: SLF001 - what its environment variables set
            self._exporter._preferred_aggregation,  # noqa: SLF001
        )
        attributes = {
            "service.name": "iceberg_maint",
            "service.version": __version__,
            "service.instance.id": str(uuid.uuid4()),
        }
        provider = MeterProvider([self._reader], Resource.create(attributes), shutdown_on_exit=False)
        self._meter = provider.get_meter("iceberg_maint", __version__)
        self._instruments: dict[Series, Any] = {}

    def send(self, samples: Sequence[Sample]) -> None:
        """Records the samples and exports all series. Raises OSError if the receiver did not take them."""
        for sample in samples:
            self._record(sample)
        data = self._reader.get_metrics_data()
        if data is not None and self._exporter.export(data, self._timeout_ms).name != "SUCCESS":
            raise OSError("the export failed or timed out")

    def _record(self, sample: Sample) -> None:
        instrument = self._instruments.get(sample.series)
        if instrument is None:
            instrument = self._instruments[sample.series] = self._make(sample.series)
        match sample.series.kind:
            case Kind.COUNTER:
                instrument.add(sample.value, sample.tags())
            case Kind.GAUGE:
                instrument.set(sample.value, sample.tags())
            case Kind.HISTOGRAM:
                instrument.record(sample.value, sample.tags())

    def _make(self, series: Series) -> Any:
        unit = _OTLP_UNITS.get(series.unit, series.unit.value)
        match series.kind:
            case Kind.COUNTER:
                return self._meter.create_counter(series.name, unit, series.meaning)
            case Kind.GAUGE:
                return self._meter.create_gauge(series.name, unit, series.meaning)
            case Kind.HISTOGRAM:
                return self._meter.create_histogram(
                    series.name,
                    unit,
                    series.meaning,
                    explicit_bucket_boundaries_advisory=DURATION_BUCKETS_SECONDS,
                )


class Cloudwatch:
    """Sends the numbers to CloudWatch with the credentials of the environment, as boto3 finds them. The sum
    over a period is the value of a counter, the last value that of a gauge."""

    is_cumulative = False

    def __init__(
        self, namespace: str, region: str | None, endpoint: str | None, timeout_seconds: float
    ) -> None:
        self._namespace = namespace
        self._region = region
        self._endpoint = endpoint
        self._timeout = timeout_seconds
        self._client: Any = None

    def send(self, samples: Sequence[Sample]) -> None:
        """Sends the samples in requests of up to 1,000."""
        if self._client is None:
            import boto3
            from botocore.config import Config

            config = Config(
                connect_timeout=self._timeout,
                read_timeout=self._timeout,
                retries={"mode": "standard", "total_max_attempts": 2},
            )
            self._client = boto3.client(
                "cloudwatch", region_name=self._region, endpoint_url=self._endpoint, config=config
            )
        data = [datum(sample) for sample in samples]
        for start in range(0, len(data), MAX_DATUMS):
            self._client.put_metric_data(
                Namespace=self._namespace, MetricData=data[start : start + MAX_DATUMS]
            )


def datum(sample: Sample) -> dict[str, Any]:
    """The sample as CloudWatch takes it."""
    return {
        "MetricName": sample.series.name,
        "Dimensions": [{"Name": name, "Value": value} for name, value in sample.tags().items()],
        "Value": float(sample.value),
        "Unit": _UNITS.get(sample.series.unit, "None"),
    }


class Dogstatsd:
    """Sends the numbers to a DogStatsD listener over UDP. A datagram that is lost on the way is not noticed."""

    is_cumulative = False

    def __init__(self, host: str, port: int, timeout_seconds: float) -> None:
        from datadog.dogstatsd.base import DogStatsd

        # The client logs every packet that it cannot send; a channel logs the first one.
        logging.getLogger("datadog.dogstatsd").setLevel(logging.CRITICAL)
        self._client = DogStatsd(
            host=host,
            port=port,
            disable_telemetry=True,
            disable_buffering=True,
            disable_aggregation=True,
            socket_timeout=timeout_seconds,
            origin_detection_enabled=False,
        )

    def send(self, samples: Sequence[Sample]) -> None:
        """Sends one datagram per sample. Raises OSError if the system did not take them."""
        before = self._client.packets_dropped
        for sample in samples:
            tags = [f"{name}:{value}" for name, value in sample.tags().items()]
            name, value = sample.series.name, sample.value
            match sample.series.kind:
                case Kind.COUNTER:
                    self._client.increment(name, value, tags)
                case Kind.GAUGE:
                    self._client.gauge(name, value, tags)
                case Kind.HISTOGRAM:
                    self._client.histogram(name, value, tags)
        dropped = self._client.packets_dropped - before
        if dropped:
            raise OSError(f"{dropped} of {len(samples)} datagrams could not be sent")
