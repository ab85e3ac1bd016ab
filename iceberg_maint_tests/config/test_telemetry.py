"""The section `telemetry` of the configuration: what it accepts, and what it refuses with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from iceberg_maint.config import Config, load_config
from iceberg_maint.config.sections import listen_address
from iceberg_maint.errors import ConfigurationError

HEAD = "catalogs:\n  lake: {type: jdbc, uri: 'sqlite:////x/c.db', warehouse: 'file:///x/w'}\n"


def load(folder: Path, section: str, **environ: str) -> Config:
    file = folder / "maint.yaml"
    file.write_text(f"{HEAD}telemetry: {section}\n")
    return load_config(file, environ, "")


def test_absent_section_is_no_telemetry(tmp_path: Path) -> None:
    (tmp_path / "maint.yaml").write_text(HEAD)
    assert load_config(tmp_path / "maint.yaml", {}, "").telemetry is None


def test_every_receiver_may_be_configured_at_once(tmp_path: Path) -> None:
    telemetry = load(
        tmp_path,
        "{prometheus: {pushgateway: 'http://gw:9091'}, otlp: {headers: {authorization: {env: TOKEN}}}, "
        "dogstatsd: {port: 9125}, cloudwatch: {region: eu-central-1}}",
        TOKEN="Bearer hunter2",
    ).telemetry
    assert telemetry is not None
    assert telemetry.prometheus is not None
    assert (telemetry.prometheus.host, telemetry.prometheus.port) == ("127.0.0.1", 9464)
    assert telemetry.prometheus.pushgateway == "http://gw:9091"
    assert telemetry.otlp is not None
    assert telemetry.otlp.endpoint == "http://127.0.0.1:4318/v1/metrics"
    assert telemetry.otlp.headers == {"authorization": "Bearer hunter2"}
    assert telemetry.dogstatsd is not None
    assert (telemetry.dogstatsd.host, telemetry.dogstatsd.port) == ("127.0.0.1", 9125)
    assert telemetry.cloudwatch is not None
    assert telemetry.cloudwatch.namespace == "iceberg_maint"
    assert "hunter2" not in repr(telemetry)


def test_secret_header_is_masked_in_output(tmp_path: Path) -> None:
    config = load(tmp_path, "{otlp: {headers: {api-token: {env: KEY}}}}", KEY="abcdefgh")
    assert config.secrets == frozenset({"abcdefgh"})


@pytest.mark.parametrize(
    ("section", "code", "words"),
    [
        ("{max_tables: -1}", "ICM-100", "telemetry.max_tables is -1. It must be from 0 to 100000."),
        (
            "{max_tables: many}",
            "ICM-100",
            "telemetry.max_tables is text. It must be a whole number from 0 to 100,000.",
        ),
        ("{prometheus: {listen: '9464'}}", "ICM-100", "is '9464'. It must have the form HOST:PORT."),
        ("{prometheus: {listen: '127.0.0.1:70000'}}", "ICM-100", "has the port 70000."),
        ("{prometheus: {listen: '0.0.0.0:9464'}}", "ICM-127", "which other machines can reach."),
        ("{prometheus: {pushgateway: 'gw:9091'}}", "ICM-100", "telemetry.prometheus.pushgateway is not an"),
        ("{otlp: {endpoint: 'file:///etc/passwd'}}", "ICM-100", "telemetry.otlp.endpoint is not an address"),
        ("{otlp: {endpoint: 'http://u:pw@host/'}}", "ICM-118", "is an address that contains a password."),
        (
            "{otlp: {headers: {api-token: abcdefgh}}}",
            "ICM-118",
            "telemetry.otlp.headers.api-token is a secret.",
        ),
        ('{otlp: {headers: {x: "a\\r\\nb"}}}', "ICM-100", "telemetry.otlp.headers.'x' is no header."),
        ("{dogstatsd: {host: 'a b'}}", "ICM-100", "telemetry.dogstatsd.host is 'a b'."),
        ("{dogstatsd: {port: 70000}}", "ICM-100", "telemetry.dogstatsd.port has the port 70000."),
        ("{cloudwatch: {namespace: AWS/S3}}", "ICM-100", "telemetry.cloudwatch.namespace is 'AWS/S3'."),
        ("{statsd: {}}", "ICM-100", "telemetry.statsd is unknown. Did you mean dogstatsd?"),
        ("{dogstatsd: {prot: 1}}", "ICM-100", "telemetry.dogstatsd.prot is unknown. Did you mean port?"),
    ],
)
def test_wrong_setting_is_refused_with_its_path_and_rule(
    section: str, code: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError) as error:
        load(tmp_path, section)
    assert error.value.code == code
    assert words in str(error.value)


def test_address_of_other_machines_needs_a_second_word() -> None:
    assert listen_address("[::1]:9464", "x", allow_remote=False) == ("::1", 9464)
    assert listen_address("0.0.0.0:9464", "x", allow_remote=True) == ("0.0.0.0", 9464)
