"""`init`: a configuration and a DAGSTER_HOME that work as they stand; nothing is overwritten."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner, Result

from iceberg_maint.cli import iceberg_maint
from iceberg_maint.config import CONFIG_VARIABLE, load_config
from iceberg_maint.config.document import document_keys
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.policy.data import MOST_SET, Mode, Policy, policy_keys
from iceberg_maint.defs import load_definitions
from iceberg_maint.defs.code_location import write_table_list
from iceberg_maint.defs.instance import check_instance
from iceberg_maint_tests.conftest import PROJECT

pytestmark = pytest.mark.slow

FILES = ["dagster_home/dagster.yaml", "dagster_home/workspace.yaml", "iceberg_maint.yaml"]
EVENTS = TableId.parse("lake.db.events")


def init(*arguments: str | Path) -> Result:
    return CliRunner().invoke(iceberg_maint, ["init", *map(str, arguments)])


def content(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


def test_shards_of_a_new_home_hold_every_table_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert init(tmp_path).exit_code == 0
    home = str(tmp_path / "dagster_home")
    assert CliRunner().invoke(iceberg_maint, ["shards", "3", home]).exit_code == 0
    tables = [TableId.parse(f"lake.db.t{n}") for n in range(12)]
    write_table_list(tmp_path / "tables.json", tables)
    monkeypatch.setenv(CONFIG_VARIABLE, str(tmp_path / "iceberg_maint.yaml"))
    monkeypatch.setenv("ICEBERG_MAINT_TABLE_LIST", str(tmp_path / "tables.json"))
    workspace = yaml.safe_load((tmp_path / "dagster_home" / "workspace.yaml").read_text("utf-8"))
    locations = [location["python_module"] for location in workspace["load_from"]]
    assert [location["location_name"] for location in locations] == [f"iceberg_maint_{n}" for n in range(3)]
    keys: list[dg.AssetKey] = []
    for location in locations:
        assert location["module_name"] == load_definitions.__name__
        keys += getattr(load_definitions, location["attribute"]).resolve_all_asset_keys()
    assert len(keys) == len(set(keys)) == 2 * len(tables) + 1  # and the report on the fleet


def test_share_that_is_none_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="name a share such as shard_0_of_4"):
        load_definitions.shard_4_of_4  # noqa: B018 - the attribute is what is tested


def test_init_without_options_writes_a_configuration_that_loads(tmp_path: Path) -> None:
    folder = tmp_path / "a lake"
    assert init(folder).exit_code == 0
    assert sorted(content(folder)) == ["catalog.db", *FILES]
    config = load_config(folder / "iceberg_maint.yaml", {}, "")
    assert config.ledger_url == f"sqlite:///{folder}/ledger.db"
    assert config.catalogs["lake"].pyiceberg_properties() == {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{tmp_path}/a%20lake/warehouse",
    }
    assert config.policy_for(EVENTS).policy.mode is Mode.ADVISE


def test_init_writes_what_people_set_and_no_null(tmp_path: Path) -> None:
    init(tmp_path)
    text = (tmp_path / "iceberg_maint.yaml").read_text("utf-8")
    assert yaml.safe_load(text) == {
        "ledger": f"sqlite:///{tmp_path}/ledger.db",
        "catalogs": {
            "lake": {
                "type": "jdbc",
                "uri": f"sqlite:///{tmp_path}/catalog.db",
                "warehouse": f"file://{tmp_path}/warehouse",
            }
        },
        "spark": {"master": "local[2]", "conf": {"spark.driver.memory": "2g"}},
        "defaults": {"mode": "advise"},
        "tables": {},
    }
    assert [line for line in text.splitlines() if re.match(r"#[^ ]", line)] == []


def test_init_all_names_every_section_of_the_file_below_a_comment(tmp_path: Path) -> None:
    init(tmp_path, "--all")
    lines = (tmp_path / "iceberg_maint.yaml").read_text("utf-8").splitlines()
    keys = {key.rpartition(".")[2] for key, place in document_keys().items() if place != "receiver"}
    positions = {
        match[1]: number for number, line in enumerate(lines) if (match := re.match(r" *(\w+):", line))
    }
    assert keys - set(positions) == set()
    assert [key for key in keys if not lines[positions[key] - 1].lstrip().startswith("#")] == []


def test_init_all_lists_every_policy_key_with_its_default_those_that_people_set_first(tmp_path: Path) -> None:
    init(tmp_path, "--all")
    file = tmp_path / "iceberg_maint.yaml"
    names = [key.path for key in policy_keys()]
    before, after = file.read_text("utf-8").split("\ndefaults:\n")
    keys = re.compile(rf"^  (?:# )?({'|'.join(map(re.escape, names))}): ", re.MULTILINE)
    assert keys.findall(after) == names
    assert names[:10] == list(MOST_SET)
    file.write_text(f"{before}\ndefaults:\n{keys.sub(lambda m: f'  {m[1]}: ', after)}", "utf-8")
    assert load_config(file, {}, "").policy_for(EVENTS).policy == replace(Policy(), mode=Mode.ADVISE)


def test_doctor_passes_on_what_init_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    init(tmp_path)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster_home"))
    arguments = ["doctor", "--no-spark", "--json", "--config", str(tmp_path / "iceberg_maint.yaml")]
    result = CliRunner().invoke(iceberg_maint, arguments)
    assert result.exit_code == 0, result.output
    checks = {c["check"]: c["status"] for c in json.loads(result.stdout)["checks"]}
    assert (checks["catalog lake"], checks["ledger"], checks["dagster"]) == ("ok", "ok", "ok")


def test_dagster_home_of_init_has_settings_that_are_not_refused(tmp_path: Path) -> None:
    init(tmp_path)
    with dg.DagsterInstance.from_config(str(tmp_path / "dagster_home")) as instance:
        check_instance(instance)
    workspace = yaml.safe_load((tmp_path / "dagster_home" / "workspace.yaml").read_text("utf-8"))
    assert workspace["load_from"][0]["python_module"]["module_name"] == "iceberg_maint.definitions"


def test_definitions_load_from_the_configuration_of_init(tmp_path: Path) -> None:
    init(tmp_path)
    load = "from iceberg_maint.definitions import defs; print(defs.resolve_job_def('observe_iceberg').name)"
    done = subprocess.run(
        [sys.executable, "-c", load],
        env=os.environ | {"ICEBERG_MAINT_CONFIG": str(tmp_path / "iceberg_maint.yaml")},
        capture_output=True,
        text=True,
        cwd=PROJECT,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("observe_iceberg\n", 0), done.stderr


def test_init_prints_the_next_three_commands(tmp_path: Path) -> None:
    folder = tmp_path / "a lake"
    result = init(folder, "--json")
    assert result.exit_code == 0
    config = f"'{folder}/iceberg_maint.yaml'"
    variables = f"DAGSTER_HOME='{folder}/dagster_home' ICEBERG_MAINT_CONFIG={config}"
    assert json.loads(result.stdout) == {
        "config": f"{folder}/iceberg_maint.yaml",
        "dagster_home": f"{folder}/dagster_home",
        "files": [
            f"{folder}/{name}"
            for name in (
                "iceberg_maint.yaml",
                "dagster_home/dagster.yaml",
                "dagster_home/workspace.yaml",
                "catalog.db",
            )
        ],
        "next": [
            f"iceberg-maint doctor --config {config}",
            f"iceberg-maint observe --config {config}",
            f"{variables} dagster dev -w '{folder}/dagster_home/workspace.yaml'",
        ],
    }


@pytest.mark.parametrize("name", FILES)
def test_init_over_an_existing_file_is_refused_and_changes_nothing(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("mine", "utf-8")
    result = init(tmp_path)
    assert result.exit_code == 2
    assert f"ICM-100 {file} exists. init overwrites no file. Fix: name another folder" in result.stderr
    assert content(tmp_path) == {name: b"mine"}


def test_init_beside_an_existing_catalog_leaves_it_alone(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_bytes(b"mine")
    result = init(tmp_path, "--json")
    assert result.exit_code == 0
    assert (tmp_path / "catalog.db").read_bytes() == b"mine"
    assert f"{tmp_path}/catalog.db" not in json.loads(result.stdout)["files"]


@pytest.mark.parametrize(
    ("arguments", "properties"),
    [
        (
            ["rest", "--uri", "https://catalog.example.com", "--warehouse", "prod"],
            {"type": "rest", "uri": "https://catalog.example.com", "warehouse": "prod"},
        ),
        (
            ["rest", "--uri", "https://catalog.example.com"],
            {"type": "rest", "uri": "https://catalog.example.com"},
        ),
        (["hive", "--uri", "thrift://meta:9083"], {"type": "hive", "uri": "thrift://meta:9083"}),
        (["glue", "--warehouse", "s3://lake/w"], {"type": "glue", "warehouse": "s3://lake/w"}),
        (
            ["jdbc", "--uri", "postgresql://maint@db/catalog", "--warehouse", "s3://lake/w"],
            {"type": "sql", "uri": "postgresql+psycopg2://maint@db/catalog", "warehouse": "s3://lake/w"},
        ),
    ],
)
def test_init_of_another_catalog_has_its_connection(
    tmp_path: Path, arguments: list[str], properties: dict[str, str]
) -> None:
    result = init(tmp_path, "--ledger", "postgresql+psycopg2://maint@db/ledger", "--catalog-type", *arguments)
    assert result.exit_code == 0, result.output
    assert sorted(content(tmp_path)) == FILES
    config = load_config(tmp_path / "iceberg_maint.yaml", {}, "")
    assert config.catalogs["lake"].pyiceberg_properties() == properties
    assert config.ledger_url == "postgresql+psycopg2://maint@db/ledger"


def test_init_keeps_a_reference_to_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER", "postgresql+psycopg2://maint:hunter2@db/ledger")
    assert init(tmp_path, "--ledger", "{env: LEDGER}").exit_code == 0
    assert "\nledger: {env: LEDGER}\n" in (tmp_path / "iceberg_maint.yaml").read_text("utf-8")
    assert load_config(tmp_path / "iceberg_maint.yaml", os.environ, "").ledger_url == os.environ["LEDGER"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--catalog-type", "rest"], "ICM-100 catalogs.lake.uri is missing."),
        (["--uri", "postgresql://db/catalog"], "ICM-100 catalogs.lake.warehouse is missing."),
        (
            ["--uri", "mysql://db/catalog", "--warehouse", "s3://w"],
            "ICM-100 catalogs.lake.uri is 'mysql://db/catalog'",
        ),
        (["--ledger", "postgresql://maint:hunter2@db/ledger"], "ICM-118 ledger"),
        (["--ledger", "{env: NOT_SET_HERE}"], "ICM-100 ledger"),
        (["--catalog-type", "hadoop"], "Invalid value for '--catalog-type'"),
        (["--config", "other.yaml"], "init reads no configuration"),
    ],
)
def test_init_with_a_wrong_option_is_refused_and_writes_nothing(
    tmp_path: Path, arguments: list[str], says: str
) -> None:
    result = init(tmp_path, *arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert "hunter2" not in result.output
    assert content(tmp_path) == {}


def test_init_where_nothing_can_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = init(tmp_path / "file" / "lake")
    assert result.exit_code == 2
    assert f"{tmp_path}/file/lake/iceberg_maint.yaml cannot be written: Not a directory." in result.stderr


def test_init_that_fails_halfway_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "dagster_home").touch()
    assert init(tmp_path).exit_code == 2
    assert content(tmp_path) == {"dagster_home": b""}


def test_init_in_a_folder_that_no_sqlite_address_can_name_is_refused(tmp_path: Path) -> None:
    result = init(tmp_path / "what?")
    assert result.exit_code == 2
    assert "has a question mark" in result.stderr
    assert not (tmp_path / "what?").exists()
