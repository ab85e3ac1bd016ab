"""`shards`: shares the tables of an installed home among another number of code locations; changes nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from iceberg_maint.cli import iceberg_maint
from iceberg_maint.defs.names import sharded_workspace
from iceberg_maint_tests.cli.test_init import content, init

pytestmark = pytest.mark.seconds


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The DAGSTER_HOME that `init` writes."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    assert init(tmp_path).exit_code == 0
    return tmp_path / "dagster_home"


def shards(*arguments: str | Path) -> Result:
    return CliRunner().invoke(iceberg_maint, ["shards", *map(str, arguments)])


def location_names(home: Path) -> list[str]:
    document = yaml.safe_load((home / "workspace.yaml").read_text("utf-8"))
    return [location["python_module"]["location_name"] for location in document["load_from"]]


def test_home_of_one_location_gets_a_workspace_of_four(home: Path, tmp_path: Path) -> None:
    before = content(tmp_path)
    result = shards(4, home)
    assert result.exit_code == 0, result.output
    first, *rest = result.output.splitlines()
    assert first == f"{home}/workspace.yaml had 1 code location and now has 4 code locations."
    assert [line.split(".")[0] for line in rest] == ["In Dagster: Deployment, Reload all"]
    expected = sharded_workspace(4).encode()
    assert content(tmp_path) == {**before, "dagster_home/workspace.yaml": expected}


def test_home_of_four_locations_goes_back_to_the_first_workspace(home: Path) -> None:
    first = (home / "workspace.yaml").read_bytes()
    assert shards(4, home).exit_code == 0
    assert location_names(home) == [f"iceberg_maint_{n}" for n in range(4)]
    assert shards(7, home).exit_code == 0
    assert location_names(home) == [f"iceberg_maint_{n}" for n in range(7)]
    assert shards(1, home).exit_code == 0
    assert (home / "workspace.yaml").read_bytes() == first


def test_home_that_dagster_home_names_is_the_default(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    result = shards("--json", 2)
    document = json.loads(result.output)
    assert (document["workspace"], document["shards"], document["shards_before"]) == (
        str(home / "workspace.yaml"),
        2,
        1,
    )
    assert location_names(home) == ["iceberg_maint_0", "iceberg_maint_1"]


def test_same_number_writes_nothing_and_asks_for_no_reload(home: Path) -> None:
    assert shards(3, home).exit_code == 0
    written = (home / "workspace.yaml").stat()
    result = shards(3, home)
    assert result.output == f"{home}/workspace.yaml has 3 code locations.\n"
    assert (home / "workspace.yaml").stat() == written


@pytest.mark.parametrize("installed", [1, 3])
def test_workspace_that_a_person_changed_is_refused_with_what_differs(home: Path, installed: int) -> None:
    assert shards(installed, home).exit_code == 0
    file = home / "workspace.yaml"
    changed = file.read_text("utf-8").replace("location_name: iceberg_maint", "location_name: lake", 1)
    file.write_text(changed + "  - python_file: own.py\n")
    result = shards(5, home)
    assert result.exit_code == 2
    ending = "" if installed == 1 else "_0"
    message = " ".join(result.output.split())
    assert (
        f"- location_name: iceberg_maint{ending}; + location_name: lake{ending}; + - python_file: own.py."
        in message
    )
    assert file.read_text("utf-8") == changed + "  - python_file: own.py\n"
    assert sorted(f.name for f in home.iterdir()) == ["dagster.yaml", "workspace.yaml"]


def test_folder_without_a_workspace_is_refused(tmp_path: Path) -> None:
    result = shards(2, tmp_path)
    assert result.exit_code == 2
    assert f"{tmp_path}/workspace.yaml cannot be read: No such file or directory." in " ".join(
        result.output.split()
    )
    assert list(tmp_path.iterdir()) == []


def test_link_to_the_workspace_stays_a_link(home: Path, tmp_path: Path) -> None:
    file = home / "workspace.yaml"
    kept = file.rename(tmp_path / "kept.yaml")
    file.symlink_to(kept)
    assert shards(2, home).exit_code == 0
    assert file.is_symlink()
    assert location_names(home) == ["iceberg_maint_0", "iceberg_maint_1"]
