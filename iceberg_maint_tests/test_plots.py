"""The plots of the docs: drawn from measured figures in the repository, each with how it was measured."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from iceberg_maint_tests.conftest import PROJECT
from iceberg_maint_tests.test_docs import script

DOCS = PROJECT / "docs"
FILES = sorted((DOCS / "project" / "plots").glob("*.json"))


def test_pictures_equal_what_the_figures_say() -> None:
    pictures = script("plots").pictures()
    assert sorted(pictures) == sorted(path.name for path in (DOCS / "images").glob("plot-*.svg"))
    different = [n for n, text in pictures.items() if (DOCS / "images" / n).read_text("utf-8") != text]
    assert different == [], "run 'make plots'"


def test_each_plot_is_on_a_page() -> None:
    pages = (PROJECT / "README.md").read_text("utf-8") + (DOCS / "project" / "figures.md").read_text("utf-8")
    assert [path.stem for path in FILES if f"images/plot-{path.stem}.svg" not in pages] == []


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
