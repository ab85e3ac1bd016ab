"""`engines`: what is read, and lists of the policy that name what is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from iceberg_maint.config.load import Config, load_config
from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.policy.engines import EngineSettings, engines_of
from iceberg_maint.errors import ConfigurationError
from iceberg_maint.wiring.statement_engines import known_engines, statement_engines

CATALOG = "catalogs: {lake: {type: rest, uri: 'http://127.0.0.1:1'}}\n"
TRINO = "engines: {trino: {uri: 'http://h:8080/'}}\n"


def load(folder: Path, text: str) -> Config:
    file = folder / "iceberg_maint.yaml"
    file.write_text(CATALOG + text, "utf-8")
    return load_config(file, {"TOKEN": "hidden"}, mounts="")


def test_engine_has_its_address_and_a_password_from_the_environment(tmp_path: Path) -> None:
    text = "engines: {trino: {uri: 'https://h', user: me, password: {env: TOKEN}, catalogs: {lake: ice}}}"
    config = load(tmp_path, text)
    assert config.engines == {"trino": EngineSettings("https://h", "me", "hidden", {"lake": "ice"}, 3600.0)}
    assert "hidden" in config.secrets
    assert "hidden" not in repr(config.engines)


def test_engines_of_a_table_are_those_of_its_pattern(tmp_path: Path) -> None:
    text = TRINO + "tables: {lake.db.t: {rewrite_data_files: {engines: [trino, spark]}}}"
    config = load(tmp_path, text)
    policies = {name: config.policy_for(TableId.parse(f"lake.db.{name}")).policy for name in "tu"}
    rewrite, deletes = Operation.REWRITE_DATA_FILES, Operation.CONVERT_EQUALITY_DELETES
    assert engines_of(rewrite, policies["t"]) == ("trino", "spark")
    assert engines_of(rewrite, policies["u"]) == ("spark",)
    assert engines_of(deletes, policies["t"]) == ("spark",)


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("engines: {trino: {uri: h}}", "engines.trino.uri must be an address with a scheme and a host."),
        (
            "engines: {trino: {uri: 'http://a b'}}",
            "engines.trino.uri must be an address with a scheme and a host.",
        ),
        ("engines: {trino: {uri: 'http://h', user: 'a;b'}}", "engines.trino.user must be a name of letters"),
        (
            "engines: {trino: {uri: 'http://h', catalogs: {lake: 'a\"b'}}}",
            "engines.trino.catalogs must be a mapping",
        ),
        (
            "engines: {trino: {uri: 'http://h', timeout_seconds: 0.5}}",
            "engines.trino.timeout_seconds must be a number",
        ),
        (
            "defaults: {rewrite_data_files: {engines: [trino]}}",
            "defaults.rewrite_data_files.engines names the engine trino, which is not configured.",
        ),
        (
            TRINO + "defaults: {rewrite_manifests: {engines: []}}",
            "defaults.rewrite_manifests.engines must be a list of spark, trino",
        ),
        (
            TRINO + "tables: {'lake.*': {expire_snapshots: {engines: [trino, trino]}}}",
            "tables.'lake.*'.expire_snapshots.engines must be a list of spark, trino, each at most once",
        ),
    ],
)
def test_setting_of_an_engine_that_cannot_be_is_refused(tmp_path: Path, text: str, fact: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load(tmp_path, text)
    assert str(refused.value).startswith(f"ICM-100 {fact}")


def test_password_in_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^ICM-118 engines\.trino\.password is a secret"):
        load(tmp_path, "engines: {trino: {uri: 'http://h', password: p}}")


def test_property_of_a_table_cannot_choose_its_engine(tmp_path: Path) -> None:
    properties = {"maintenance.rewrite_data_files.engines": "trino"}
    with pytest.raises(ConfigurationError, match="may be set in the configuration file only"):
        load(tmp_path, TRINO).policy_for(TableId.parse("lake.db.t"), properties)


def test_engines_are_the_modules_of_their_folder() -> None:
    assert known_engines() == ("dremio", "spark-connect", "trino")


@pytest.mark.parametrize(
    ("name", "uri", "fact"),
    [
        ("presto", "http://h", "engines.presto is unknown."),
        ("trino", "sc://h", "engines.trino.uri must begin with http:// or https://."),
        ("spark-connect", "http://h", "engines.spark-connect.uri must begin with sc://."),
        ("dremio", "http://h", "engines.dremio.uri must begin with grpc:// or grpc+tcp:// or grpc+tls://."),
    ],
)
def test_engine_that_is_not_there_is_refused(name: str, uri: str, fact: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        statement_engines({name: EngineSettings(uri, "me", None, {}, 1.0)})
    assert str(refused.value).startswith(f"ICM-100 {fact}")


@pytest.mark.parametrize(
    ("name", "uri", "rule"),
    [
        ("trino", "http://trino.example.com:8080", "https://"),
        ("dremio", "grpc://dremio.example.com:32010", "grpc+tls://"),
        ("dremio", "grpc+tcp://10.0.0.1:32010", "grpc+tls://"),
    ],
)
def test_password_in_clear_text_to_another_machine_is_refused(name: str, uri: str, rule: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        statement_engines({name: EngineSettings(uri, "me", "p", {}, 1.0)})
    scheme, _, host = uri.rpartition(":")[0].partition("//")
    assert str(refused.value) == (
        f"ICM-100 engines.{name}.uri begins with {scheme}//, which would send engines.{name}.password to {host} in clear "
        f"text. Fix: set engines.{name}.uri to an address that begins with {rule}."
    )


@pytest.mark.parametrize(
    ("name", "uri", "password"),
    [
        ("trino", "https://trino.example.com", "p"),
        ("trino", "http://127.0.0.1:8080", "p"),
        ("trino", "http://[::1]:8080", "p"),
        ("trino", "http://localhost:8080", "p"),
        ("trino", "http://trino.example.com", None),
        ("spark-connect", "sc://spark.example.com", "p"),
        ("dremio", "grpc+tls://dremio.example.com", "p"),
    ],
)
def test_password_over_tls_or_to_this_machine_is_accepted(name: str, uri: str, password: str | None) -> None:
    assert list(statement_engines({name: EngineSettings(uri, "me", password, {}, 1.0)})) == [name]
