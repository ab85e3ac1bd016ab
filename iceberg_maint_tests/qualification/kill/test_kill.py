"""The kill suite is whole, tells what is wrong, and its cheapest cases hold; `make qualify SUITE=kill` runs all of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.session.settings import catalog_conf
from iceberg_maint_tests.qualification.kill import suite as suite_module
from iceberg_maint_tests.qualification.kill.__main__ import one_of_each_point
from iceberg_maint_tests.qualification.kill.lake import CATALOG, Lake
from iceberg_maint_tests.qualification.kill.points import (
    GRID_KINDS,
    POINTS,
    Case,
    Kind,
    Mode,
    Point,
    Seam,
    cases,
)
from iceberg_maint_tests.qualification.kill.suite import Results, Suite, is_good, rounds
from iceberg_maint_tests.qualification.kill.verify import _double_effects

pytestmark = [pytest.mark.slow, pytest.mark.drawn(4)]

HURT_HERE = (
    ("K8", Mode.LOST),
    ("K12", Mode.SIGTERM),
    ("X3", Mode.LOST),
    ("M3", Mode.LOST),
    ("O3", Mode.SIGTERM),
)
"""Of every operation one case in which this process lives on."""


def point_of(code: str) -> Point:
    return next(p for p in POINTS if p.code == code)


def test_grid_has_every_point_in_every_way_on_every_kind_once() -> None:
    counted = Counter(case.name for case in cases())
    grid = [Case(p, m, k) for p in POINTS if p.code[0] != "P" for m in Mode for k in GRID_KINDS]
    assert set(counted.values()) == {1}
    assert len(grid) == 24 * 4 * 4
    assert {case.name for case in grid} <= set(counted)


def test_one_of_each_point_is_killed_in_every_way_and_on_every_kind() -> None:
    chosen = one_of_each_point(list(cases()))
    assert [case.point.code for case in chosen] == [point.code for point in POINTS]
    assert {case.mode for case in chosen} == set(Mode)
    assert {case.kind for case in chosen} == set(Kind)


def test_rounds_of_a_process_that_is_killed_while_it_writes_have_one_table_each() -> None:
    writing = [r for r in rounds(cases()) if r[0].seam is Seam.WRITING]
    assert {len(kinds) for _, mode, kinds in writing if mode in (Mode.PYTHON, Mode.JVM)} == {1}
    assert {len(kinds) for _, mode, kinds in writing if mode in (Mode.LOST, Mode.SIGTERM)} == {len(Kind)}


def test_suite_is_taken_up_where_it_was_left(tmp_path: Path) -> None:
    first, second, *_ = cases()
    row = {"case": first.name, "differences": [], "attempts": 1}
    Results(tmp_path / "rows.jsonl", "a").add(row)
    assert Results(tmp_path / "rows.jsonl", "b").open_cases()[0] == second
    assert json.loads((tmp_path / "rows.jsonl").read_text("utf-8")) == {**row, "commit": "a"}


@pytest.mark.parametrize(
    ("differences", "attempts", "good"), [([], 2, True), ([], 3, False), (["x"], 1, False)]
)
def test_case_is_good_without_a_difference_after_two_runs(
    differences: list[str], attempts: int, good: bool
) -> None:
    assert is_good({"differences": differences, "attempts": attempts}) is good


@pytest.fixture(scope="module")
def suite(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    folder = tmp_path_factory.mktemp("kill")
    uri, warehouse = f"sqlite:///{folder}/catalog.db", f"file://{folder}/warehouse"
    for key, value in catalog_conf(CATALOG, "jdbc", uri, warehouse, {}).items():
        spark.conf.set(key, value)
    lake = Lake(folder, lambda: spark, (Kind.UNPARTITIONED,))
    lake.configured()
    yield Suite.on(lake, Bridge(spark))
    lake.close()


@pytest.mark.spark
@pytest.mark.drawn(1)
@pytest.mark.parametrize(("code", "mode"), HURT_HERE)
def test_run_that_is_hurt_is_taken_up_by_the_next(suite: Suite, code: str, mode: Mode) -> None:
    [row] = suite.round(point_of(code), mode, [Kind.UNPARTITIONED])
    assert is_good(row), row


@pytest.mark.spark
def test_differences_are_reported(suite: Suite) -> None:
    suite.lake.put_back()
    verifier, kind = suite.verifier, Kind.UNPARTITIONED
    operations = point_of("K8").asked(kind)
    undone = verifier.differences(kind, operations)
    assert [d.partition(":")[0] for d in undone] == ["rewrite_data_files is due"]
    table = verifier._table(kind)
    assert list(verifier._missing_files(table)) == []
    gone = next(suite.lake.place(kind).glob("data/0*.parquet"))
    gone.unlink()
    assert [d.rpartition("/")[2] for d in verifier._missing_files(table)] == [gone.name]
    suite.lake.put_back()
    assert list(verifier._missing_files(table)) == []
    assert list(_double_effects(table)) == []


@pytest.mark.spark
def test_case_is_not_good_if_no_run_continues_the_rest(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite_module, "resume", lambda *_: ())
    [row] = suite.round(point_of("K9"), Mode.LOST, [Kind.UNPARTITIONED])
    assert not is_good(row)
    assert "open attempt of rewrite_data_files: ATTEMPT" in row["differences"]
