"""Prometheus: the page that it scrapes, and pushes to a Pushgateway."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import default_handler, pushadd_to_gateway
from prometheus_client.registry import Collector

from iceberg_maint.integrations.telemetry.catalogue import TABLE
from iceberg_maint.integrations.telemetry.series import (
    DURATION_BUCKETS_SECONDS,
    Distribution,
    Kind,
    Sample,
    Series,
    Totals,
    Value,
)

JOB = "iceberg_maint"


class TotalsCollector(Collector):
    """Gives the current totals to the client library, in the form of Prometheus."""

    def __init__(self, totals: Callable[[], Totals]) -> None:
        self._totals = totals

    def collect(self) -> Iterator[Metric]:
        """One metric family per series that has a value."""
        for series, values in self._totals().families():
            yield family(series, values)

    def describe(self) -> Iterator[Metric]:
        """Nothing: names follow from the catalogue, where they are unique."""
        yield from ()


def family(series: Series, values: Sequence[tuple[tuple[str, ...], Value]]) -> Metric:
    """The metric family of a series."""
    name, labels = series.prometheus_name, series.labels
    text = f"{series.meaning[:1].upper()}{series.meaning[1:]}."
    match series.kind:
        case Kind.COUNTER:
            counter = CounterMetricFamily(name.removesuffix("_total"), text, labels=labels)
            for key, value in values:
                counter.add_metric(key, _number(value))
            return counter
        case Kind.GAUGE:
            gauge = GaugeMetricFamily(name, text, labels=labels)
            for key, value in values:
                gauge.add_metric(key, _number(value))
            return gauge
        case Kind.HISTOGRAM:
            histogram = HistogramMetricFamily(name, text, labels=labels)
            for key, value in values:
                assert isinstance(value, Distribution)
                bounds = [*(str(b) for b in DURATION_BUCKETS_SECONDS), "+Inf"]
                buckets = list(zip(bounds, value.buckets, strict=True))
                histogram.add_metric(key, buckets, sum_value=value.total)
            return histogram


def _number(value: Value) -> float:
    assert isinstance(value, float | int)
    return value


def registry_of(totals: Callable[[], Totals]) -> CollectorRegistry:
    """A registry that has the totals only."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(TotalsCollector(totals))
    return registry


def page(totals: Totals) -> str:
    """The page in Prometheus' text format."""
    return generate_latest(registry_of(lambda: totals)).decode("utf-8")


def serve(host: str, port: int, totals: Callable[[], Totals]) -> tuple[WSGIServer, int]:
    """Serves the page in a thread. Returns the server and its port. Raises OSError if the port is taken."""
    server, _thread = start_http_server(port, addr=host, registry=registry_of(totals))
    return server, server.server_port


class Pushgateway:
    """Pushes the numbers of this process to a Pushgateway, one group per table. A group has the numbers of the
    last process that maintained the table."""

    is_cumulative = True

    def __init__(self, url: str, timeout_seconds: float) -> None:
        self._url = url
        self._timeout = timeout_seconds
        self._groups: dict[tuple[str, ...], Totals] = {}

    def send(self, samples: Sequence[Sample]) -> None:
        """Adds the samples to their groups and pushes these groups."""
        changed: dict[tuple[str, ...], list[Sample]] = {}
        for sample in samples:
            is_table = sample.series.labels[: len(TABLE)] == TABLE
            changed.setdefault(sample.labels[: len(TABLE)] if is_table else (), []).append(sample)
        for key, group in changed.items():
            self._groups.setdefault(key, Totals()).add(group)
        for key in changed:
            registry = registry_of(lambda key=key: self._groups[key])  # type: ignore[misc]
            pushadd_to_gateway(
                self._url,
                job=JOB,
                registry=registry,
                grouping_key=dict(zip(TABLE, key, strict=False)),
                timeout=self._timeout,
                handler=default_handler,
            )
