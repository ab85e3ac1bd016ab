"""What the program is made of: every piece pinned by its hash, every licence told."""

from __future__ import annotations

import importlib.util
import json
import re
from types import ModuleType

import pytest

from iceberg_maint_tests.conftest import PROJECT

pytestmark = pytest.mark.seconds

LOCKS = sorted((PROJECT / "requirements").glob("*.txt"))


@pytest.fixture(scope="module")
def licences() -> ModuleType:
    spec = importlib.util.spec_from_file_location("licences", PROJECT / "docs" / "licences.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("lock", LOCKS, ids=lambda p: p.stem)
def test_every_line_of_every_lock_is_one_exact_version_with_a_hash(lock: object) -> None:
    entries = re.split(r"^(?=\S)", lock.read_text("utf-8"), flags=re.MULTILINE)
    packages = [e for e in entries if e.strip() and not e.startswith("#")]
    assert packages
    assert [e for e in packages if not re.match(r"[a-z0-9._-]+(\[[^]]*\])?==\S+", e)] == []
    assert [e.split()[0] for e in packages if "--hash=sha256:" not in e] == []


def test_setup_installs_by_hash_only() -> None:
    setup = (PROJECT / "requirements" / "setup.sh").read_text("utf-8")
    (install,) = re.findall(r"^install\(\) \{.*$", setup, re.MULTILINE)
    assert "--require-hashes --no-deps" in install
    others = [line for line in setup.splitlines() if re.match(r"\s*pip install", line)]
    assert [line for line in others if "--no-index" not in line] == []


def test_every_jar_has_a_checksum() -> None:
    lock = json.loads(
        (PROJECT / "iceberg_maint" / "engines" / "spark" / "session" / "jars.lock.json").read_text("utf-8")
    )
    jars = [*lock["common"], *(jar for pair in lock["pairs"] for jar in pair["jars"])]
    assert len(jars) >= 4
    assert [j["coordinate"] for j in jars if not re.fullmatch(r"[0-9a-f]{64}", j["sha256"])] == []


def test_list_of_licences_is_complete_and_as_the_packages_say(licences: ModuleType) -> None:
    assert (PROJECT / "docs" / "project" / "licences.md").read_text("utf-8") == licences.page(), (
        "run 'make reference'"
    )


def test_every_locked_package_is_listed_or_of_another_platform(licences: ModuleType) -> None:
    lock = (PROJECT / "requirements" / "runtime.txt").read_text("utf-8")
    elsewhere = set(re.findall(r"^([a-z0-9._-]+)==\S+ ; .*(?:win32|Windows)", lock, re.MULTILINE))
    assert set(licences.locked()) - {name for name, _, _ in licences.packages()} <= elsewhere


def test_no_licence_asks_for_the_source_of_what_uses_it(licences: ModuleType) -> None:
    rows = [*licences.packages(), *licences.jars()]
    strict = [r for r in rows if re.search(r"\bA?GPL|Affero|(?<!Lesser )General Public", r[2])]
    assert [r for r in strict if "LGPL" not in r[2]] == []
