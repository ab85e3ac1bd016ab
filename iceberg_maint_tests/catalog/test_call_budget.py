"""The budget of calls: spaced, shared by processes through a file, and robust against what the file holds."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from iceberg_maint.catalog.service_calls import CallBudget
from iceberg_maint.wiring.adapters import load
from iceberg_maint_tests.support.catalog.table_files import TableFiles


class Time:
    """A clock that only waiting moves."""

    def __init__(self) -> None:
        self.now, self.waits = 100.0, list[float]()

    def budget(self, per_second: float | None, file: Path | None = None) -> CallBudget:
        return CallBudget(per_second, file, lambda: self.now, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.waits.append(round(seconds, 6))
        self.now += seconds


@pytest.mark.parametrize("shared", [False, True])
def test_calls_are_spaced(tmp_path: Path, shared: bool) -> None:
    clock = Time()
    budget = clock.budget(4, tmp_path / "calls" / "lake" if shared else None)
    for _ in range(3):
        budget.take()
    budget.take(3)
    budget.take()
    assert clock.waits == [0.25, 0.25, 0.25, 0.75]
    assert budget.calls == 7


def test_calls_without_a_budget_are_counted_only() -> None:
    clock = Time()
    budget = clock.budget(None)
    budget.take(5)
    assert (budget.calls, clock.waits) == (5, [])


def test_time_that_passed_without_calls_is_not_saved_up(tmp_path: Path) -> None:
    clock = Time()
    budget = clock.budget(1, tmp_path / "lake")
    budget.take()
    clock.now += 1000
    budget.take()
    budget.take()
    assert clock.waits == [1.0]


def test_two_budgets_of_one_file_share_it(tmp_path: Path) -> None:
    clock = Time()
    first, second = clock.budget(2, tmp_path / "lake"), clock.budget(2, tmp_path / "lake")
    first.take()
    second.take()
    first.take()
    assert clock.waits == [0.5, 0.5]


@pytest.mark.parametrize("content", ["", "no number", "1e300", "nan", "inf"])
def test_file_that_holds_another_time_delays_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "lake").write_text(content)
    clock = Time()
    clock.budget(1, tmp_path / "lake").take()
    assert clock.waits == []


@pytest.mark.parametrize(("content", "waits"), [("3700.0", [3600.0]), ("3700.5", [])])
def test_file_that_holds_a_time_more_than_an_hour_ahead_delays_nothing(
    tmp_path: Path, content: str, waits: list[float]
) -> None:
    (tmp_path / "lake").write_text(content)
    clock = Time()
    clock.budget(1, tmp_path / "lake").take()
    assert clock.waits == waits


def test_processes_share_the_budget(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from iceberg_maint.catalog.service_calls import CallBudget\n"
        "budget = CallBudget(50, Path(sys.argv[1]))\n"
        "for _ in range(10): budget.take(); print(time.monotonic())\n"
    )
    begin = time.monotonic()
    started = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "lake")], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    times = sorted(float(t) for p in started for t in p.communicate()[0].split())
    assert begin < times[0]
    # The first call is free; each of the others has a time of its own, a fiftieth of a second later.
    assert times[-1] - times[0] >= 19 / 50 - 0.02


def test_catalogs_of_a_configuration_keep_their_budgets_in_the_home_folder(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    TableFiles(tmp_path / "t", schema, [PartitionSpec()]).register(tmp_path / "catalog.db", "db.events")
    connection = f"type: jdbc, uri: 'sqlite:///{tmp_path}/catalog.db', warehouse: 'file://{tmp_path}'"
    file = tmp_path / "maint.yaml"
    lake, other = f"lake: {{{connection}, calls_per_second: 1000}}", f"other: {{{connection}}}"
    file.write_text(f"ledger: 'sqlite:///{tmp_path}/ledger.db'\ncatalogs:\n  {lake}\n  {other}\n")
    context = load(file)
    for name in ("lake", "other"):
        context.catalogs[name].tables()
    events = context.catalogs.find("lake.db.events")
    context.catalogs["lake"].pointers([events])
    assert context.catalogs.calls() == 4
    assert [f.name.partition("-")[0] for f in (tmp_path / ".iceberg_maint" / "calls").iterdir()] == ["lake"]
