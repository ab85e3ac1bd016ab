"""DogStatsD: the numbers as datagrams to a Datadog agent."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from datadog.dogstatsd.base import DogStatsd

from iceberg_maint.integrations.telemetry.series import Kind, Sample


class Dogstatsd:
    """Sends the numbers to a DogStatsD listener over UDP. A datagram that is lost on the way is not noticed."""

    is_cumulative = False

    def __init__(self, host: str, port: int, timeout_seconds: float) -> None:
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
