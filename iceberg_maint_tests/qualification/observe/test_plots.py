"""The pictures of dashboards."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from iceberg_maint.integrations.telemetry.series import Unit
from iceberg_maint_tests.qualification.observe.__main__ import thinned
from iceberg_maint_tests.qualification.observe.plots import (
    COLOURS,
    MOST_LINES,
    Plot,
    draw,
    nice_maximum,
    value_text,
)


def lines_of(svg: str) -> list[str]:
    root = ET.fromstring(svg)
    return [e.attrib["points"] for e in root.iter("{http://www.w3.org/2000/svg}polyline")]


def test_picture_has_a_line_per_series_from_the_first_to_the_last_second() -> None:
    svg = draw(
        "fleet <1>", [Plot("due & open", Unit.COUNT, {"a": [(100.0, 0.0), (200.0, 10.0)]})], 100.0, 200.0
    )
    [points] = lines_of(svg)
    assert points == "62.0,180.0 556.0,34.0"
    assert "fleet &lt;1&gt;" in svg
    assert "due &amp; open" in svg


def test_picture_draws_the_highest_lines_and_counts_the_others() -> None:
    lines = {f"table{n}": [(0.0, float(n)), (1.0, float(n))] for n in range(20)}
    svg = draw("x", [Plot("p", Unit.COUNT, lines)], 0.0, 1.0)
    assert len(lines_of(svg)) == MOST_LINES
    assert "table19" in svg
    assert "more" in svg


def test_panel_without_data_says_so() -> None:
    svg = draw("x", [Plot("p", Unit.COUNT, {})], 0.0, 1.0)
    assert "no data" in svg


@pytest.mark.parametrize(
    ("value", "unit", "maximum"),
    [
        (0, Unit.COUNT, 1),
        (3, Unit.COUNT, 4),
        (34, Unit.COUNT, 40),
        (900, Unit.COUNT, 1000),
        (3000, Unit.BYTES, 4096),
    ],
)
def test_axis_ends_at_a_round_value(value: float, unit: Unit, maximum: float) -> None:
    assert nice_maximum(value, unit) == maximum


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.5, Unit.COUNT, "0.5"),
        (25000, Unit.COUNT, "25,000"),
        (1.5 * 2**20, Unit.BYTES, "1.5 MiB"),
        (20, Unit.SECONDS, "20 s"),
    ],
)
def test_value_of_an_axis_has_its_unit(value: float, unit: Unit, text: str) -> None:
    assert value_text(value, unit) == text


def test_line_keeps_the_points_where_its_value_changes() -> None:
    points = [(0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (3.0, 5.0), (4.0, 5.0), (5.0, 5.0)]
    assert thinned(points) == [(0.0, 1.0), (2.0, 1.0), (3.0, 5.0), (5.0, 5.0)]


def luminance(colour: str) -> float:
    """The relative luminance of `#rrggbb` (WCAG 2)."""
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("panel", ["#f8fafc", "#1e293b"])
@pytest.mark.parametrize("colour", COLOURS)
def test_line_has_a_contrast_of_three_to_one_in_light_and_dark(colour: str, panel: str) -> None:
    assert f"--panel:{panel}" in draw("x", [], 0.0, 1.0)
    dark, light = sorted(map(luminance, (colour, panel)))
    assert (light + 0.05) / (dark + 0.05) >= 3
