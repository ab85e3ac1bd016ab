"""CloudWatch: the numbers as custom metrics, by the AWS SDK."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import boto3
from botocore.config import Config

from iceberg_maint.integrations.telemetry.series import Sample, Unit

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
