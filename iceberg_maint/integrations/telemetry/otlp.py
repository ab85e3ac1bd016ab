"""OTLP: the numbers as instruments of OpenTelemetry, exported by its own client over HTTP."""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import Counter, Histogram
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import Resource

from iceberg_maint import __version__
from iceberg_maint.integrations.telemetry.series import DURATION_BUCKETS_SECONDS, Kind, Sample, Series, Unit

_CLIENT_LOG = "opentelemetry.exporter.otlp.proto.http.metric_exporter"
_UNITS = {Unit.EPOCH: "s", Unit.RATIO: "1"}


class _Watched(MetricExporter):
    """The client's exporter, which also keeps whether the last export failed."""

    def __init__(self, exporter: OTLPMetricExporter) -> None:
        super().__init__(exporter._preferred_temporality, exporter._preferred_aggregation)  # noqa: SLF001
        self._exporter = exporter
        self.failed = False

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        result = self._exporter.export(metrics_data, timeout_millis, **kwargs)
        self.failed = result is not MetricExportResult.SUCCESS
        return result

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return self._exporter.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        self._exporter.shutdown(timeout_millis, **kwargs)


class Otlp:
    """Sends the numbers to an OTLP receiver. Counters are cumulative from the start of the process, which has
    its own `service.instance.id`."""

    is_cumulative = True

    def __init__(self, endpoint: str, headers: Mapping[str, str], timeout_seconds: float) -> None:
        # The client logs every try of a failed export; a channel logs the first one.
        logging.getLogger(_CLIENT_LOG).setLevel(logging.CRITICAL)
        self._timeout_ms = timeout_seconds * 1000
        self._exporter = _Watched(
            OTLPMetricExporter(endpoint=endpoint, headers=dict(headers), timeout=timeout_seconds)
        )
        reader = PeriodicExportingMetricReader(
            self._exporter, export_interval_millis=math.inf, export_timeout_millis=self._timeout_ms
        )
        resource = Resource.create(
            {
                "service.name": "iceberg_maint",
                "service.version": __version__,
                "service.instance.id": str(uuid.uuid4()),
            }
        )
        self._provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        self._meter = self._provider.get_meter("iceberg_maint", __version__)
        self._instruments: dict[Series, Any] = {}

    def send(self, samples: Sequence[Sample]) -> None:
        """Records the samples and exports all series. Raises OSError if the receiver did not take them."""
        for sample in samples:
            self._record(sample)
        if not self._provider.force_flush(self._timeout_ms) or self._exporter.failed:
            raise OSError("the export failed or timed out")

    def _record(self, sample: Sample) -> None:
        instrument = self._instruments.get(sample.series)
        if instrument is None:
            instrument = self._instruments[sample.series] = self._make(sample.series)
        attributes = sample.tags()
        if isinstance(instrument, Counter):
            instrument.add(sample.value, attributes)
        elif isinstance(instrument, Histogram):
            instrument.record(sample.value, attributes)
        else:
            instrument.set(sample.value, attributes)

    def _make(self, series: Series) -> Any:
        unit = _UNITS.get(series.unit, series.unit.value)
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
