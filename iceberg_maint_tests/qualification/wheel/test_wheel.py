"""What the sdist and the wheel hold. `make qualify SUITE=wheel` installs the wheel and uses it."""

from __future__ import annotations

import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message

import pytest

import iceberg_maint
from iceberg_maint_tests.conftest import PROJECT
from iceberg_maint_tests.qualification.wheel.build import Built, build

pytestmark = [pytest.mark.slow, pytest.mark.variant]  # `make dist` of the night builds them too

VERSION = iceberg_maint.__version__


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("built"))


def wheel_file(built: Built, name: str) -> bytes:
    with zipfile.ZipFile(built.wheel) as wheel:
        return wheel.read(name)


def metadata(built: Built) -> Message:
    return message_from_bytes(wheel_file(built, f"iceberg_maint-{VERSION}.dist-info/METADATA"))


def test_sdist_holds_every_file_of_the_project(built: Built) -> None:
    with tarfile.open(built.sdist) as sdist:
        names = {n.removeprefix(f"iceberg_maint-{VERSION}/") for n in sdist.getnames()}
    assert {"docs/reference/configuration.md", "iceberg_maint_tests/conftest.py"} < built.sources
    assert built.sources - names == set()


def test_wheel_holds_every_file_of_the_package_and_no_other_package(built: Built) -> None:
    package = {name for name in built.sources if name.startswith("iceberg_maint/")}
    with zipfile.ZipFile(built.wheel) as wheel:
        names = {n for n in wheel.namelist() if ".dist-info/" not in n}
    assert names == package
    assert {
        "iceberg_maint/py.typed",
        "iceberg_maint/cli/init.yaml",
        "iceberg_maint/defs/dagster.yaml",
        "iceberg_maint/defs/workspace.yaml",
        "iceberg_maint/engines/spark/session/jars.lock.json",
    } < names


def test_wheel_metadata_are_those_of_the_project(built: Built) -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    found = metadata(built)
    assert (found["Name"], found["Version"]) == ("iceberg-maint", VERSION)
    assert found["License-Expression"] == "Apache-2.0"
    assert found.get_all("Classifier") == project["classifiers"]
    assert "Typing :: Typed" in project["classifiers"]
    assert set(found.get_all("Provides-Extra") or ()) == set(project["optional-dependencies"])
    entry_points = wheel_file(built, f"iceberg_maint-{VERSION}.dist-info/entry_points.txt").decode()
    assert "iceberg-maint = iceberg_maint.cli:main" in entry_points
    assert "[dagster_dg_cli.registry_modules]\niceberg_maint = iceberg_maint.component" in entry_points
