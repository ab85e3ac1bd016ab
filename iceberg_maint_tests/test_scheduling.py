"""The lists of `support/scheduling.py` name modules and folders that exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from iceberg_maint_tests.support.scheduling import (
    LONG,
    SPLIT,
    TOGETHER,
    order_of,
    scope_of,
)
from iceberg_maint_tests.support.variants import DRAWN, Variants

pytestmark = pytest.mark.seconds

PROJECT = Path(__file__).resolve().parent.parent


def test_scheduling_every_path_exists() -> None:
    assert [path for path in (*sum(TOGETHER, ()), *SPLIT, *LONG) if not (PROJECT / path).exists()] == []


def test_scheduling_modules_of_a_group_are_one_scope() -> None:
    scopes = [{scope_of(f"{module}::test") for module in group} for group in TOGETHER]
    assert [len(s) for s in scopes] == [1, 1]
    assert len(set.union(*scopes)) == len(TOGETHER)


def test_scheduling_long_modules_come_first_and_short_ones_last() -> None:
    of_programs = [order_of(f"{group[-1]}::test", spark=True, slow=False) for group in TOGETHER]
    of_long = order_of(f"{LONG[-1]}::test", spark=True, slow=False)
    of_spark = order_of("iceberg_maint_tests/spark/test_engine.py::test", spark=True, slow=False)
    of_sweep = order_of(
        "iceberg_maint_tests/qualification/simulation/test_lives.py::test", spark=False, slow=True
    )
    of_unit = order_of("iceberg_maint_tests/core/commits/test_gate.py::test", spark=False, slow=False)

    assert of_programs == [0, 1]
    assert 1 < of_long < of_spark < of_sweep < of_unit


def test_variants_every_entry_names_tests_that_exist() -> None:
    places = {entry: entry.partition("::") for entry in DRAWN}
    assert [
        entry
        for entry, (path, _, name) in places.items()
        if not (PROJECT / path).exists() or (name and f"def {name}" not in (PROJECT / path).read_text())
    ] == []


class _Variant:
    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid
        self.markers: list[str] = []

    def add_marker(self, marker: pytest.MarkDecorator) -> None:
        self.markers.append(marker.name)


def test_variants_of_a_test_beyond_its_number_are_marked() -> None:
    drawn = "iceberg_maint_tests/spark/test_verify.py::test_verify"
    others = "iceberg_maint_tests/core/commits/test_gate.py::test_gate"
    items = [_Variant(f"{test}[{version}]") for test in (drawn, others) for version in (1, 2, 3)]

    Variants().pytest_collection_modifyitems(items)  # type: ignore[arg-type]

    marked = [i.nodeid for i in items if i.markers == ["variant"]]
    assert DRAWN["iceberg_maint_tests/spark/test_verify.py"] == 1
    assert [m.partition("[")[0] for m in marked] == [drawn, drawn]


CONFTEST = """
from iceberg_maint_tests.support.scheduling import Scheduling

def pytest_xdist_make_scheduler(config, log):
    return Scheduling(config, log)
"""


@pytest.mark.parametrize("at", ["middle", "last"])
def test_scheduling_lost_worker_fails_its_test_and_ends_no_other(tmp_path: Path, at: str) -> None:
    """Six modules of one test and one of three tests; one test ends its process."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    place = {"middle": 3, "last": 6}[at]
    for module in range(7):
        names = ["a", "b", "c"] if module == place else ["a"]
        lost = "b" if module == place else ""
        body = "".join(
            f"def test_{n}():\n    import os, time\n    time.sleep(0.05)\n"
            + ("    os._exit(9)\n" if n == lost else "")
            for n in names
        )
        (tmp_path / f"test_{module}.py").write_text(body)
    plugins = ["-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:hypothesispytest"]
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "2",
            "-q",
            *plugins,
            str(tmp_path),
            "--rootdir",
            str(tmp_path),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PROJECT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert re.search(r"1 failed, 8 passed", result.stdout), result.stdout
    assert f"crashed while running 'test_{place}.py::test_b'" in result.stdout
