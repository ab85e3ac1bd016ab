"""`rights` prints the policies of the configured catalogs and connects to nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from iceberg_maint.cli import iceberg_maint
from iceberg_maint_tests.catalog.test_rights_probe import s3_lake


def invoke(folder: Path, *arguments: str) -> Result:
    config = folder / "iceberg_maint.yaml"
    glue = {"type": "glue", "warehouse": "s3://bucket/w"}
    polaris = {"type": "rest", "uri": "http://127.0.0.1:1", "warehouse": "prod"}
    document = {"ledger": f"sqlite:///{folder}/ledger.db", "catalogs": {"lake": glue, "polaris": polaris}}
    config.write_text(json.dumps(document))
    return CliRunner().invoke(iceberg_maint, ["--config", str(config), "rights", *arguments])


def test_rights_prints_each_role_of_each_catalog(tmp_path: Path) -> None:
    document = json.loads(invoke(tmp_path, "--json").output)
    entries = {(e["catalog"], e["role"]): e for e in document["roles"]}
    assert set(entries) == {
        (c, r) for c in ("lake", "polaris") for r in ("advise", "compact", "expire", "collect")
    }
    assert entries["lake", "collect"]["operations"] == ["remove_orphan_files"]
    assert entries["lake", "collect"]["rights"] == ["load", "list", "get", "put", "delete"]
    assert entries["lake", "collect"]["polaris_grants"] == []
    assert entries["polaris", "advise"]["iam_policy"] is None
    assert len(entries["polaris", "advise"]["polaris_grants"]) == 5


@pytest.mark.variant
def test_rights_of_one_role_is_text_to_copy(tmp_path: Path) -> None:
    output = invoke(tmp_path, "lake", "--role", "compact").output
    head, policy = output.split("AWS IAM policy:\n")
    assert head == "lake, role compact: load, get, put, commit\n"
    assert json.loads(policy)["Version"] == "2012-10-17"


def test_role_without_a_policy_says_which_setting_to_write(tmp_path: Path) -> None:
    config = tmp_path / "iceberg_maint.yaml"
    config.write_text("catalogs: {plain: {type: rest, uri: 'http://127.0.0.1:1'}}\n")
    output = CliRunner().invoke(iceberg_maint, ["--config", str(config), "rights", "--role", "advise"]).output
    assert output == (
        "plain, role advise: load, get\n"
        "No policy: the configuration names nothing that this role needs rights on: no S3 location, no Glue. "
        "Fix: set catalogs.plain.approved_locations, or its warehouse.\n\n"
    )


def test_rights_of_an_unknown_catalog_is_refused(tmp_path: Path) -> None:
    result = invoke(tmp_path, "other")
    assert result.exit_code == 2
    assert "ICM-100 'other' is not a configured catalog. There are lake, polaris." in result.output


def test_doctor_names_the_missing_right_of_the_first_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for check in ("check_java", "check_jars"):
        monkeypatch.setattr(f"iceberg_maint.cli.checks.machine.{check}", lambda _config: "")
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    with s3_lake(tmp_path) as lake:
        properties = {"s3.endpoint": lake.endpoint, "s3.region": "us-east-1"}
        secrets = {"s3.access-key-id": {"env": "KEY"}, "s3.secret-access-key": {"env": "KEY"}}
        monkeypatch.setenv("KEY", "a-long-secret-key")
        catalog = {
            "type": "jdbc",
            "uri": f"sqlite:///{tmp_path}/catalog.db",
            "warehouse": "s3://bucket/w",
            "properties": properties | secrets,
        }
        document = {
            "ledger": f"sqlite:///{tmp_path}/ledger.db",
            "catalogs": {"lake": catalog},
            "defaults": {"mode": "act"},
        }
        config = tmp_path / "iceberg_maint.yaml"
        config.write_text(json.dumps(document))
        lake.bucket.denied = frozenset({"delete"})
        arguments = ["--config", str(config), "--json", "doctor", "--no-spark"]
        result = CliRunner().invoke(iceberg_maint, arguments)
    checks = [c for c in json.loads(result.stdout)["checks"] if c["check"] == "rights on lake.db.events"]
    assert [(c["status"], c["code"]) for c in checks] == [("failed", "ICM-125"), ("ok", None)]
    assert "the right to delete is missing" in checks[0]["detail"]
    assert checks[1]["detail"] == "get, list, put, commit permitted"
