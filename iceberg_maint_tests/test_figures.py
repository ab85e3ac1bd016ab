"""The figures of the docs: records in the repository, from which the page and the plots follow."""

from __future__ import annotations

import json
import re
import shlex
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench.record import updated, written
from iceberg_maint_tests.conftest import PROJECT
from iceberg_maint_tests.nightly.suites import check_call, load
from iceberg_maint_tests.test_docs import script

DOCS = PROJECT / "docs"
RECORDS = sorted((DOCS / "project" / "figures").glob("*.json"))
FILES = sorted((DOCS / "project" / "plots").glob("*.json"))


def test_pictures_equal_what_the_figures_say() -> None:
    pictures = script("plots").pictures()
    assert sorted(pictures) == sorted(path.name for path in (DOCS / "images").glob("plot-*.svg"))
    different = [n for n, text in pictures.items() if (DOCS / "images" / n).read_text("utf-8") != text]
    assert different == [], "run 'make figures'"


def test_each_plot_is_on_a_page() -> None:
    page = (DOCS / "project" / "figures.md").read_text("utf-8")
    assert [path.stem for path in FILES if f"images/plot-{path.stem}.svg" not in page] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file_of_figures_names_command_date_commit_and_load_of_each_figure(path: Path) -> None:
    plot = json.loads(path.read_text("utf-8"))
    for measurement in plot["measured"]:
        assert sorted(measurement) == ["command", "commit", "date", "load"]
        assert date.fromisoformat(measurement["date"]).year == 2026
        assert re.fullmatch("[0-9a-f]{8}", measurement["commit"])
        assert re.match(r"python -m bench\.\w+|make [a-z-]+", measurement["command"])
        assert measurement["load"]
    assert {figure.get("of", 0) for figure in plot["figures"]} == set(range(len(plot["measured"])))
    assert {figure["series"] for figure in plot["figures"]} == set(range(len(plot["series"])))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_picture_is_one_document_within_its_frame(path: Path) -> None:
    root = ET.fromstring((DOCS / "images" / f"plot-{path.stem}.svg").read_text("utf-8"))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for shape in root.iter("{http://www.w3.org/2000/svg}rect"):
        assert float(shape.attrib["x"]) + float(shape.attrib["width"]) <= width
        assert float(shape.attrib["y"]) + float(shape.attrib["height"]) <= height


def test_page_equals_what_the_records_say_and_is_short() -> None:
    page = script("figures").page()
    assert (DOCS / "project" / "figures.md").read_text("utf-8") == page, "run 'make figures'"
    assert len(page.split()) <= 4200


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_row_of_a_record_names_its_command_commit_and_date(path: Path) -> None:
    text = path.read_text("utf-8")
    record = json.loads(text)
    assert text == written(record)
    targets = set(re.findall(r"^\.PHONY: (\S+)", (PROJECT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for row in record["rows"]:
        assert set(row) - {"of"} == {"what", "figure", "target", "command", "commit", "date"}
        assert all(row[key] for key in ("what", "figure", "command"))
        assert date.fromisoformat(row["date"]).year == 2026
        assert re.fullmatch("[0-9a-f]{8}", row["commit"])
        program, name = re.match(r"(make|python -m) (\S+)", row["command"]).groups()  # type: ignore[union-attr]
        assert name in targets if program == "make" else find_spec(name) is not None
        if program == "make":
            check_call(shlex.split(row["command"]), load())


def test_row_that_a_bench_writes_is_of_a_bench_that_publishes_its_record() -> None:
    sources = "".join(path.read_text("utf-8") for path in (PROJECT / "bench").rglob("*.py"))
    published = set(re.findall(r'publish\(\s*"(\w+)"', sources))
    has_format = {path.stem for path in RECORDS if '"of":' in path.read_text("utf-8")}
    assert has_format - published == set()
    assert published - {path.stem for path in RECORDS} == set()


def test_record_takes_the_figures_that_the_document_has_and_keeps_the_others() -> None:
    row = {"what": "a", "figure": "1.0", "target": "", "command": "", "commit": "a" * 8, "date": "2026-01-01"}
    of_row, other = row | {"of": "{work, s[0]:.1f}"}, row | {"of": "{other}"}
    record = {"section": "S", "rows": [row, of_row, other]}
    changed = updated(record, {"work, s": [2.25]}, "b" * 8, "2026-02-02")
    assert changed["rows"] == [
        row,
        of_row | {"figure": "2.2", "commit": "b" * 8, "date": "2026-02-02"},
        other,
    ]


@pytest.mark.parametrize(
    ("figure", "target", "missed"),
    [
        ("3.9", "≥ 4", True),
        ("4", "≥ 4", False),
        ("1,671", "≥ 50,000", True),
        ("61, 2", "≤ 60", True),
        ("0; 87", "≤ 0", False),
        ("3.2/2.3/1.6; 3.5/3.4/0.9", "≥ 2.5/2.5/1", True),
        ("3.2/2.6/1.6; 1.5/1.4/0.9", "≥ 2.5/2.5/1", False),
    ],
)
def test_figure_beyond_its_limit_is_shown_as_missed(figure: str, target: str, *, missed: bool) -> None:
    assert script("figures").is_missed({"figure": figure, "target": target}) is missed


def record(name: str) -> list[dict[str, str]]:
    return json.loads((DOCS / "project" / "figures" / f"{name}.json").read_text("utf-8"))["rows"]


def test_race_of_the_readme_is_that_of_the_record() -> None:
    readme = (PROJECT / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| `.* \| (\d+ of \d+) \| (\d+) \| (\d+) \|$", readme, re.MULTILINE)
    recorded = [row["figure"] for row in record("demo") if row["command"] == "make demo DEMO=race"]
    assert sorted(f"{lost}, {back}; {commits}" for commits, lost, back in rows) == sorted(recorded)


def test_cold_runs_of_the_readme_and_of_its_plot_are_those_of_the_record() -> None:
    readme = (PROJECT / "README.md").read_text("utf-8")
    [shown] = re.findall(r"takes ([\d.]+) to ([\d.]+) times less CPU than one", readme)
    recorded = [
        [float(ratio) for ratio in row["figure"].split(";")[0].split("/")] for row in record("end_to_end")
    ]
    assert shown == (f"{min(r[0] for r in recorded):.1f}", f"{max(r[0] for r in recorded):.1f}")
    plot = json.loads((DOCS / "project" / "plots" / "cold.json").read_text("utf-8"))
    drawn = [figure["value"] for figure in plot["figures"]]
    assert drawn == [ratio for ratios in recorded for ratio in ratios]
