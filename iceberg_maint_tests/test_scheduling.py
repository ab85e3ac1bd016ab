"""Marks decide which tests workers run together and first, and which variants `make test` runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from iceberg_maint_tests.support.scheduling import order_of, scope_of
from iceberg_maint_tests.support.variants import Variants

pytestmark = pytest.mark.seconds

PROJECT = Path(__file__).resolve().parent.parent


DAEMONS = "iceberg_maint_tests/defs/test_daemon.py"


def test_modules_of_a_group_are_one_scope_and_tests_of_a_split_module_one_each(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"test_{name}.py").write_text('pytestmark = [pytest.mark.together("daemons")]\n')
    (tmp_path / "test_c.py").write_text("pytestmark = pytest.mark.split\n")
    (tmp_path / "test_d.py").write_text("")
    scopes = [scope_of(f"test_{name}.py::test_{n}", tmp_path) for name in "abcd" for n in (1, 2)]
    assert scopes == ["daemons"] * 4 + ["test_c.py::test_1", "test_c.py::test_2", "test_d.py", "test_d.py"]


def test_group_of_the_daemon_is_read_from_its_module() -> None:
    assert scope_of(f"{DAEMONS}::test", PROJECT) == "daemons"


class _Item:
    """A test by its name and marks."""

    def __init__(self, name: str, *marks: pytest.MarkDecorator) -> None:
        self.name, self.nodeid = name, f"test_x.py::{name}"
        self.marks = {m.name: m for m in marks}

    def add_marker(self, marker: pytest.MarkDecorator) -> None:
        self.marks[marker.name] = marker

    def get_closest_marker(self, name: str) -> pytest.MarkDecorator | None:
        return self.marks.get(name)


def test_long_modules_come_first_and_short_ones_last() -> None:
    mark = pytest.mark
    marks = [(), (mark.slow,), (mark.spark, mark.slow), (mark.long(70), mark.spark), (mark.long(300),)]
    orders = [order_of(_Item("test", *of)) for of in marks]  # type: ignore[arg-type]
    assert orders == sorted(orders, reverse=True)
    assert len(set(orders)) == len(orders)


def test_variants_of_a_test_beyond_its_number_are_marked() -> None:
    drawn = [_Item(f"test_verify[{version}]", pytest.mark.drawn(1)) for version in (1, 2, 3)]
    others = [_Item(f"test_gate[{version}]") for version in (1, 2, 3)]

    Variants().pytest_collection_modifyitems([*drawn, *others])  # type: ignore[list-item]

    assert [sum("variant" in item.marks for item in of) for of in (drawn, others)] == [2, 0]


CONFTEST = """
from iceberg_maint_tests.support.scheduling import Scheduling

def pytest_xdist_make_scheduler(config, log):
    return Scheduling(config, log)
"""


@pytest.mark.drawn(1)
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
    plugins = ["-p", "xdist.plugin", "-p", "no:cacheprovider"]
    environ = {
        **os.environ,
        "PYTHONPATH": str(PROJECT),
        "PYTEST_ADDOPTS": "",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
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
        env=environ,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert re.search(r"1 failed, 8 passed", result.stdout), result.stdout
    assert f"crashed while running 'test_{place}.py::test_b'" in result.stdout
