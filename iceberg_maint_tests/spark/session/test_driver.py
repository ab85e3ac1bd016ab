"""The driver must be this process: Spark Connect and cluster mode are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from iceberg_maint.config import load_config
from iceberg_maint.engines.spark.session import session
from iceberg_maint.engines.spark.session.session import check_session
from iceberg_maint.engines.spark.session.session_checks import check_classic, check_driver_environment
from iceberg_maint.engines.spark.session.settings import SparkSettings, spark_conf
from iceberg_maint.errors import RefusedError
from iceberg_maint.wiring import spark_session
from iceberg_maint.wiring.adapters import build
from iceberg_maint.wiring.spark_session import ready_spark_settings


@pytest.mark.parametrize(
    ("master", "conf", "named"),
    [
        ("sc://cluster:15002", {}, "sc://cluster:15002"),
        ("yarn", {"spark.remote": "sc://cluster"}, "spark.remote"),
        ("yarn", {"spark.api.mode": "connect"}, "spark.api.mode"),
        ("yarn", {"spark.submit.deployMode": "cluster"}, "spark.submit.deployMode = cluster starts"),
        (
            "yarn",
            {"spark.submit.deployMode": "driver"},
            "spark.submit.deployMode = driver; it must be client",
        ),
    ],
)
def test_driver_in_another_process_is_refused(master: str, conf: dict[str, str], named: str) -> None:
    with pytest.raises(RefusedError, match="ICM-164") as refused:
        spark_conf(SparkSettings(master, (), {}, conf))
    assert named in refused.value.message


@pytest.mark.parametrize(
    "master", ["local[2]", "spark://h:7077", "yarn", "k8s://https://kubernetes.default.svc"]
)
def test_driver_in_this_process_is_accepted(master: str) -> None:
    settings = SparkSettings(
        master, (), {}, {"spark.submit.deployMode": "client", "spark.api.mode": "classic"}
    )
    assert spark_conf(settings)["spark.master"] == master


@pytest.mark.parametrize("name", ["SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"])
def test_variable_of_spark_connect_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(RefusedError, match=f"ICM-164 the environment variable {name} "):
        check_driver_environment({name: "1"})
    check_driver_environment({name: ""})


def test_variable_is_refused_before_spark_starts_and_the_address_by_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "iceberg_maint.yaml"
    config.write_text("catalogs: {lake: {type: rest, uri: 'http://127.0.0.1:1'}}\n", "utf-8")
    monkeypatch.setenv("SPARK_REMOTE", "sc://cluster")
    with pytest.raises(RefusedError, match="ICM-164"):
        ready_spark_settings(load_config(config, {}))
    with config.open("a", encoding="utf-8") as file:
        file.write("spark: {master: 'sc://cluster:15002'}\n")
    with pytest.raises(RefusedError, match="ICM-164"):
        build(load_config(config, {}))


def test_session_of_spark_connect_that_other_code_built_is_refused() -> None:
    # The class by its module: Spark Connect's own needs packages that are not installed.
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    for check in (check_classic, check_session):
        with pytest.raises(RefusedError, match="ICM-164"):
            check(session)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("", True),
        ("defaults: {rewrite_data_files: {strategy: columnar}}", True),
        ("defaults: {rewrite_data_files: {strategy: native}}", False),
        ("tables: {'db.large': {rewrite_data_files: {strategy: native}}}", False),
        ("catalogs: {lake: {policy: {rewrite_data_files: {strategy: native}}}}", False),
    ],
)
def test_jvm_is_compiled_for_a_short_run_unless_a_policy_asks_for_native(
    policy: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document: dict[str, Any] = {
        "catalogs": {"lake": {"type": "rest", "uri": "http://127.0.0.1:1"}},
    }
    given = yaml.safe_load(policy) or {}
    document["catalogs"]["lake"] |= given.pop("catalogs", {}).get("lake", {})
    config = tmp_path / "iceberg_maint.yaml"
    config.write_text(yaml.safe_dump(document | given), "utf-8")
    started: list[bool] = []
    monkeypatch.setattr(spark_session, "start_settings", lambda _config: None)
    monkeypatch.setattr(session, "start_driver", lambda *_, is_short, **__: started.append(is_short))
    spark_session.driver(load_config(config, {}))
    assert started == [expected]
