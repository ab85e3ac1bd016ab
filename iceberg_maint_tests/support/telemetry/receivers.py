"""Receivers of telemetry on loopback, each of which decodes what it gets by the format's own rules.

Every receiver gives its numbers as `(series name, labels) -> value`; a histogram as two, `NAME count` and `NAME sum`.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from prometheus_client.parser import text_string_to_metric_families

from iceberg_maint.integrations.telemetry.catalogue import CATALOGUE
from iceberg_maint.integrations.telemetry.series import Kind

Key = tuple[str, tuple[tuple[str, str], ...]]
Numbers = dict[Key, float]
BY_PROMETHEUS_NAME = {s.prometheus_name: s for s in CATALOGUE}


def key_of(name: str, labels: dict[str, str]) -> Key:
    return name, tuple(sorted(labels.items()))


def prometheus_numbers(page: str) -> Numbers:
    """The numbers of a page, read by the parser of Prometheus' own client."""
    numbers: Numbers = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            base = sample.name.removesuffix("_sum").removesuffix("_count")
            series = BY_PROMETHEUS_NAME.get(sample.name) or BY_PROMETHEUS_NAME.get(base)
            if series is None or sample.name.endswith("_bucket"):
                continue
            part = sample.name.rpartition("_")[2] if series.kind is Kind.HISTOGRAM else ""
            numbers[key_of(f"{series.name} {part}".strip(), sample.labels)] = sample.value
    return numbers


class _Server:
    """An HTTP server in a thread. `status` is what it answers."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, bytes]] = []
        self.status = 200
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                receiver.requests.append((self.path, body))
                answer = receiver.answer()
                self.send_response(receiver.status)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_PUT = do_POST

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}).start()

    def answer(self) -> bytes:
        return b""

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class OtlpReceiver(_Server):
    """Decodes protobuf as an OpenTelemetry collector does."""

    def answer(self) -> bytes:
        return ExportMetricsServiceResponse().SerializeToString()

    def numbers(self) -> Numbers:
        """Cumulative numbers: the last export has them all."""
        numbers: Numbers = {}
        for path, body in self.requests:
            assert path == "/v1/metrics"
            request = ExportMetricsServiceRequest.FromString(body)
            for metric in (m for r in request.resource_metrics for s in r.scope_metrics for m in s.metrics):
                self._read(metric, numbers)
        return numbers

    @staticmethod
    def _read(metric: Any, numbers: Numbers) -> None:
        kind = metric.WhichOneof("data")
        for point in getattr(metric, kind).data_points:
            labels = {a.key: a.value.string_value for a in point.attributes}
            if kind == "histogram":
                numbers[key_of(f"{metric.name} count", labels)] = point.count
                numbers[key_of(f"{metric.name} sum", labels)] = point.sum
            else:
                numbers[key_of(metric.name, labels)] = getattr(point, point.WhichOneof("value"))


class StatsdListener:
    """Reads DogStatsD's wire format: `name:value|type|#key:value,key:value`, one metric per line."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(0.2)
        self.port = self._socket.getsockname()[1]
        self.lines: list[str] = []

    def drain(self) -> None:
        """Reads every datagram that has arrived."""
        while True:
            try:
                self.lines += self._socket.recv(65_536).decode("utf-8").splitlines()
            except TimeoutError:
                return

    def numbers(self) -> Numbers:
        self.drain()
        numbers: Numbers = {}
        for line in self.lines:
            metric, kind, tags = line.split("|")
            name, _, value = metric.partition(":")
            assert tags.startswith("#")
            labels = dict(tag.split(":", 1) for tag in tags[1:].split(","))
            key = key_of(name, labels)
            if kind == "c":
                numbers[key] = numbers.get(key, 0) + float(value)
            elif kind == "g":
                numbers[key] = float(value)
            else:
                assert kind == "h"
                for part, number in (("count", 1.0), ("sum", float(value))):
                    key = key_of(f"{name} {part}", labels)
                    numbers[key] = numbers.get(key, 0.0) + number
        return numbers

    def close(self) -> None:
        self._socket.close()


class Gateway(_Server):
    """A Pushgateway: keeps the last page of each group."""

    def groups(self) -> dict[str, Numbers]:
        """The numbers of each group, by the path of the group."""
        return {unquote(path): prometheus_numbers(body.decode("utf-8")) for path, body in self.requests}

    def numbers(self) -> Numbers:
        return {k: v for group in self.groups().values() for k, v in group.items()}


def cloudwatch_numbers(namespace: str, endpoint: str) -> Numbers:
    """The numbers that CloudWatch has, by its own statistics."""
    import boto3

    client = boto3.client("cloudwatch", region_name="eu-central-1", endpoint_url=endpoint)
    by_name = {s.name: s for s in CATALOGUE}
    numbers: Numbers = {}
    for page in client.get_paginator("list_metrics").paginate(Namespace=namespace):
        for metric in page["Metrics"]:
            name, labels = metric["MetricName"], {d["Name"]: d["Value"] for d in metric["Dimensions"]}
            point = _statistics(client, metric)
            match by_name[name].kind:
                case Kind.HISTOGRAM:
                    numbers[key_of(f"{name} count", labels)] = point["SampleCount"]
                    numbers[key_of(f"{name} sum", labels)] = point["Sum"]
                case Kind.COUNTER:
                    numbers[key_of(name, labels)] = point["Sum"]
                case Kind.GAUGE:
                    assert point["Minimum"] == point["Maximum"], "the test sent a gauge twice"
                    numbers[key_of(name, labels)] = point["Maximum"]
    return numbers


def _statistics(client: Any, metric: dict[str, Any]) -> dict[str, Any]:
    import datetime as dt

    now = dt.datetime.now(dt.UTC)
    (point,) = client.get_metric_statistics(
        **metric,
        StartTime=now - dt.timedelta(hours=1),
        EndTime=now + dt.timedelta(hours=1),
        Period=7200,
        Statistics=["Sum", "SampleCount", "Maximum", "Minimum"],
    )["Datapoints"]
    return dict(point)


@contextmanager
def fake_aws() -> Iterator[str]:
    """The endpoint of moto's AWS on loopback. The environment has credentials of nobody."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED")
    with pytest.MonkeyPatch.context() as environment:
        for name in names:
            environment.setenv(name, "true")
        try:
            yield f"http://{host}:{port}"
        finally:
            server.stop()
