"""One run of the real loop: the same numbers in Prometheus, OTLP, DogStatsD and CloudWatch, each decoded from its wire."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from iceberg_maint.config import Config, load_config
from iceberg_maint.errors import ConfigurationError
from iceberg_maint.integrations.telemetry import EXTRAS, ledger_totals, telemetry
from iceberg_maint.integrations.telemetry.catalogue import HEALTH, OBSERVED
from iceberg_maint.integrations.telemetry.prometheus import serve
from iceberg_maint.ports.observers import NO_TELEMETRY, Telemetry
from iceberg_maint_tests.cli.conftest import Lake, lake_of
from iceberg_maint_tests.support.context import changed
from iceberg_maint_tests.support.telemetry.receivers import (
    Gateway,
    Numbers,
    OtlpReceiver,
    StatsdListener,
    cloudwatch_numbers,
    fake_aws,
    key_of,
    prometheus_numbers,
)

pytestmark = pytest.mark.seconds

SICK = {"catalog": "lake", "namespace": "db", "table": "sick"}


def settings(folder: Path, section: str, **environ: str) -> Config:
    file = folder / "maint.yaml"
    head = "catalogs:\n  lake: {type: jdbc, uri: 'sqlite:////x/c.db', warehouse: 'file:///x/w'}\n"
    file.write_text(f"{head}telemetry:\n{section}")
    return load_config(file, environ, "")


@dataclass
class World:
    """Four receivers that got the numbers of one run."""

    lake: Lake
    gateway: Gateway
    otlp: OtlpReceiver
    statsd: StatsdListener
    cloudwatch: Numbers


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("telemetry")
    lake = lake_of(folder, {"lake.db.sick": {"1": 10, "2": 8, "3": 2}, "lake.db.healthy": {"1": 2}})
    gateway, otlp, statsd = Gateway(), OtlpReceiver(), StatsdListener()
    with fake_aws() as aws:
        config = settings(
            folder,
            f"  prometheus: {{pushgateway: '{gateway.url}'}}\n"
            f"  otlp: {{endpoint: '{otlp.url}/v1/metrics'}}\n  dogstatsd: {{port: {statsd.port}}}\n"
            f"  cloudwatch: {{region: eu-central-1, endpoint: '{aws}'}}\n",
        )
        delivery = telemetry(config)
        lake.context = changed(lake.context, telemetry=delivery)
        result = lake("run", "lake.db.sick", "--operation", "rewrite_data_files")
        assert result.exit_code == 0, result.output
        delivery.close()
        cloudwatch = cloudwatch_numbers("iceberg_maint", aws)
        lake.context = changed(lake.context, telemetry=NO_TELEMETRY)
    statsd.drain()
    yield World(lake, gateway, otlp, statsd, cloudwatch)
    gateway.close()
    otlp.close()
    statsd.close()


def test_every_receiver_has_the_same_numbers(world: World) -> None:
    expected = world.otlp.numbers()
    assert len(expected) > 50
    assert world.statsd.numbers() == pytest.approx(expected)
    assert world.gateway.numbers() == pytest.approx(expected)
    assert world.cloudwatch == pytest.approx(expected)


def test_numbers_are_those_of_the_run_and_of_the_table_after_it(world: World) -> None:
    numbers = world.otlp.numbers()
    labels = {**SICK, "operation": "rewrite_data_files"}
    document = world.lake.json("history", "lake.db.sick")["records"][0]
    batches = document["batches"]
    assert numbers[key_of("iceberg_maint.rewrite.input.files", labels)] == 18
    assert numbers[key_of("iceberg_maint.rewrite.output.files", labels)] == 2
    assert numbers[key_of("iceberg.commit.attempts", labels)] == sum(b["commit_tries"] for b in batches)
    outcome = {**labels, "outcome": document["outcome"], "reason": document["reason"]}
    assert numbers[key_of("iceberg_maint.operations", outcome)] == 1
    (health,) = world.lake.json("observe", "lake.db.sick")["tables"]
    for metric, series in HEALTH.items():
        value = health["health"][metric]
        if value is not None:
            seconds = value / 1000 if metric.endswith("_ms") else value
            assert numbers[key_of(series.name, SICK)] == pytest.approx(seconds), metric


def test_page_from_the_ledger_has_the_same_numbers_as_the_run(world: World) -> None:
    totals = ledger_totals(world.lake.context, 1000)
    server, port = serve("127.0.0.1", 0, totals)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
            numbers = prometheus_numbers(page.read().decode("utf-8"))
    finally:
        server.shutdown()
        server.server_close()
    pushed = world.gateway.numbers()
    # The time of a measurement is the ledger's there, and decisions depend on the time.
    pushed.pop(key_of(OBSERVED.name, SICK))
    assert {key: numbers.get(key) for key in pushed} == pytest.approx(pushed)


def test_pushgateway_gets_one_group_per_table(world: World) -> None:
    assert list(world.gateway.groups()) == ["/metrics/job/iceberg_maint/catalog/lake/namespace/db/table/sick"]


def test_receivers_that_are_down_change_no_outcome(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, {"lake.db.sick": {"1": 10}})
    gateway, otlp = Gateway(), OtlpReceiver()
    gateway.close()
    otlp.close()
    config = settings(
        tmp_path,
        f"  prometheus: {{pushgateway: '{gateway.url}'}}\n  otlp: {{endpoint: '{otlp.url}/v1/metrics'}}\n",
    )
    lake.context = changed(lake.context, telemetry=telemetry(config))
    assert lake("run").exit_code == 0
    lake.context.observers.telemetry.close()
    assert lake.json("history")["records"][-1]["outcome"] == "IMPROVED"


@pytest.mark.parametrize("status", [401, 403, 404, 500])
def test_receiver_that_refuses_is_an_error_of_its_channel(
    status: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake = lake_of(tmp_path, {"lake.db.sick": {"1": 10}})
    otlp = OtlpReceiver()
    otlp.status = status
    config = settings(tmp_path, f"  otlp: {{endpoint: '{otlp.url}/v1/metrics'}}\n")
    delivery: Telemetry = telemetry(config)
    lake.context = changed(lake.context, telemetry=delivery)
    assert lake("observe").exit_code == 0
    delivery.close()
    otlp.close()
    assert [r.getMessage().split()[0] for r in caplog.records if "ICM" in r.getMessage()] == ["ICM-140"]


def test_client_that_is_not_installed_is_refused_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EXTRAS, "otlp", "no-such-package")
    with pytest.raises(ConfigurationError) as error:
        telemetry(settings(tmp_path, "  otlp: {}\n"))
    assert str(error.value) == (
        "ICM-142 telemetry.otlp needs the package no-such-package, which is not installed. "
        "Fix: run: pip install 'iceberg-maint[otlp]', or remove telemetry.otlp."
    )
