"""Receivers that take each number once: a Datadog agent and CloudWatch."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from iceberg_maint.integrations.telemetry.series import Kind, Sample, Unit

MAX_DATUMS = 1000
"""Most metrics in one request."""
_UNITS = {Unit.COUNT: "Count", Unit.BYTES: "Bytes", Unit.SECONDS: "Seconds"}


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
