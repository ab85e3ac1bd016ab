"""Draws the plots of measured figures: docs/images/plot-NAME.svg from docs/project/plots/NAME.json.

    python docs/plots.py

A file of figures has a title, a unit, the kind of its plot, what was measured (`measured`: command, date, commit and load of each
measurement), and the figures. Each figure names its measurement by `of`, its place in that list from 0 (0 without
it). To show newer figures, replace both and run the script again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
FIGURES = DOCS / "project" / "plots"
IMAGES = DOCS / "images"

# The card has a background of its own: it is readable on any page, in the scheme that the reader's system asks for.
_STYLE = """text{font:12px system-ui,-apple-system,"Segoe UI",sans-serif;fill:#1f2328}
.t{font-size:15px;font-weight:600}.m{fill:#59636e}.c{fill:#fff;stroke:#d1d9e0}.g{stroke:#d1d9e0}.a{stroke:#59636e}
.f0{fill:#0969da}.f1{fill:#9a6700}.f2{fill:#8c959f}.f3{fill:#1a7f37}
.s0{stroke:#0969da}.s1{stroke:#9a6700}.s2{stroke:#8c959f}.s3{stroke:#1a7f37}.l{fill:none;stroke-width:2}.e{text-anchor:end}.n{text-anchor:middle}
@media (prefers-color-scheme:dark){text{fill:#f0f6fc}.m{fill:#9198a1}.c{fill:#0d1117;stroke:#3d444d}.g{stroke:#3d444d}.a{stroke:#9198a1}
.f0{fill:#4493f8}.f1{fill:#d29922}.f2{fill:#6e7681}.f3{fill:#3fb950}
.s0{stroke:#4493f8}.s1{stroke:#d29922}.s2{stroke:#6e7681}.s3{stroke:#3fb950}}"""
_WIDTH, _MARGIN, _BAR, _CHARACTER = 760, 24, 14, 6.6


def draw(plot: Mapping[str, Any]) -> str:
    """The plot as SVG."""
    parts, height = _KINDS[plot["kind"]](plot)
    notes = [f"{m['date']}, {m['commit']}, load {m['load']}: {m['command']}" for m in plot["measured"]]
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(plot["title"])}">',
        f"<title>{escape(plot['title'])}</title><desc>{escape('; '.join(notes))}</desc><style>{_STYLE}</style>",
        f'<rect class="c" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1}" rx="8"/>',
        _text(_MARGIN, 28, plot["title"], "t"),
        _text(_MARGIN, 46, plot["unit"], "m"),
        *parts,
    ]
    return "\n".join([*lines, "</svg>", ""])


def _bars(plot: Mapping[str, Any]) -> tuple[list[str], int]:
    """Panels side by side. Each has groups of horizontal bars, one for each series, with the value at the end of the bar."""
    panels, series, groups = plot["panels"], plot["series"], plot["groups"]
    label = max(len(line) for name in groups for line in name.split("\n")) * _CHARACTER + 10
    panel = (_WIDTH - 2 * _MARGIN - label) / len(panels)
    scale = min(
        (panel - len(_value_text(f, plot)) * _CHARACTER - 14) / f.get("high", f["value"])
        for f in plot["figures"]
    )
    step = _BAR * len(series) + 12
    parts = _legend(series, 68) if len(series) > 1 else []
    first = 100 if len(series) > 1 else 78
    for column, name in enumerate(panels):
        left = _MARGIN + label + column * panel
        parts.append(_text(left, first - 6, name, "m"))
        bottom = first + step * len(groups) - 4
        parts.append(_line(left, first, left, bottom, "a"))
        if "reference" in plot:
            at = left + plot["reference"]["value"] * scale
            parts.append(_line(at, first, at, bottom, "a", dashed=True))
    for row, group in enumerate(groups):
        y = first + 4 + row * step
        middle = y + _BAR * len(series) / 2
        rows = group.split("\n")
        parts += [
            _text(_MARGIN, middle + 4 + 14 * (n - (len(rows) - 1) / 2), line, "m" if n else "")
            for n, line in enumerate(rows)
        ]
        for f in (f for f in plot["figures"] if f["group"] == row):
            x, at = _MARGIN + label + f["panel"] * panel, y + _BAR * f["series"]
            color = f["series"] if len(series) > 1 else (0 if row == 0 else 2)
            parts.append(
                f'<rect class="f{color}" x="{x:.1f}" y="{at + 1:.1f}" width="{f["value"] * scale:.1f}" height="{_BAR - 2}" rx="2"/>'
            )
            if "high" in f:
                parts.append(
                    _line(x + f["low"] * scale, at + _BAR / 2, x + f["high"] * scale, at + _BAR / 2, "a")
                )
            end = x + f.get("high", f["value"]) * scale
            parts.append(_text(end + 5, at + _BAR - 3, _value_text(f, plot)))
    height = first + step * len(groups) + 16
    if "reference" in plot:
        parts.append(_text(_MARGIN + label, height, f"dashed: {plot['reference']['name']}", "m"))
        height += 14
    return parts, height


def _lines(plot: Mapping[str, Any]) -> tuple[list[str], int]:
    """One line for each series, with its name at the end."""
    series = plot["series"]
    right = max(map(len, series)) * _CHARACTER + 16
    left, top, width, height = _MARGIN + 34, 74, _WIDTH - 2 * _MARGIN - 34 - right, 220
    xs, ys = [f["x"] for f in plot["figures"]], [f["value"] for f in plot["figures"]]
    is_log = plot.get("scale") == "log"
    x_of = _scale(min(xs), max(xs), left, left + width, is_log=is_log)
    bottom_value = 10 ** math.floor(math.log10(min(ys))) if is_log else 0.0
    y_of = _scale(
        bottom_value, max(*ys, *plot["y_ticks"]) * (1.2 if is_log else 1), top + height, top, is_log=is_log
    )
    parts = []
    for tick in plot["y_ticks"]:
        parts += [
            _line(left, y_of(tick), left + width, y_of(tick), "g"),
            _text(left - 6, y_of(tick) + 4, f"{tick:,g}", "m e"),
        ]
    for tick in plot["x_ticks"]:
        parts.append(_text(x_of(tick), top + height + 18, f"{tick:,g}", "m n"))
    parts.append(_text(left + width / 2, top + height + 38, plot["x_name"], "m n"))
    ends = []
    for number, name in enumerate(series):
        points = sorted((f["x"], f["value"]) for f in plot["figures"] if f["series"] == number)
        path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in points)
        parts.append(f'<polyline class="l s{number}" points="{path}"/>')
        if len(points) < 10:
            parts += [
                f'<circle class="f{number}" cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="3.5"/>'
                for x, y in points
            ]
        ends.append((y_of(points[-1][1]), number, name))
    lowest = -math.inf
    for y, number, name in sorted(ends):
        lowest = max(y + 4, lowest + 15)  # names of lines that end close together stay apart
        parts.append(f'<circle class="f{number}" cx="{left + width + 12:.1f}" cy="{lowest - 4:.1f}" r="4"/>')
        parts.append(_text(left + width + 20, lowest, name))
    return parts, top + height + 54


_KINDS: dict[str, Callable[[Mapping[str, Any]], tuple[list[str], int]]] = {"bars": _bars, "lines": _lines}


def _scale(low: float, high: float, start: float, end: float, *, is_log: bool) -> Callable[[float], float]:
    of: Callable[[float], float] = math.log10 if is_log else float
    return lambda value: start + (of(value) - of(low)) / (of(high) - of(low)) * (end - start)


def _value_text(figure: Mapping[str, Any], plot: Mapping[str, Any]) -> str:
    text = f"{figure['value']:g}"
    if "high" in figure:
        text += f" ({figure['low']:g} to {figure['high']:g})"
    if plot.get("ratios") and figure["series"] == 0:
        (other,) = (
            f
            for f in plot["figures"]
            if f["series"] == 1 and all(f[k] == figure[k] for k in ("panel", "group"))
        )
        text += f" ({other['value'] / figure['value']:.1f} times less)"
    return text


def _legend(series: Sequence[str], y: float) -> list[str]:
    parts, x = [], float(_MARGIN)
    for number, name in enumerate(series):
        parts.append(f'<rect class="f{number}" x="{x:.1f}" y="{y - 10:.1f}" width="11" height="11" rx="2"/>')
        parts.append(_text(x + 16, y, name))
        x += 16 + len(name) * _CHARACTER + 22
    return parts


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    of_kind = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{of_kind}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str, *, dashed: bool = False) -> str:
    dashes = ' stroke-dasharray="3 3"' if dashed else ""
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"{dashes}/>'


def pictures() -> dict[str, str]:
    """The picture of every file of figures, by the name of its file."""
    plots = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(FIGURES.glob("*.json"))}
    return {f"plot-{name}.svg": draw(plot) for name, plot in plots.items()}


if __name__ == "__main__":
    for file_name, picture in pictures().items():
        (IMAGES / file_name).write_text(picture, encoding="utf-8")
