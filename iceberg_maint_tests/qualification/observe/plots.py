"""Draws the panels of a dashboard as one SVG, in light and dark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from iceberg_maint.integrations.telemetry.series import Unit

Point = tuple[float, float]
"""Seconds since 1970, and the value."""

WIDTH, COLUMNS, GAP = 1200, 2, 20
PANEL_WIDTH = (WIDTH - (COLUMNS + 1) * GAP) / COLUMNS
PANEL_HEIGHT, TITLE, LEGEND, AXIS = 230.0, 34.0, 34.0, 62.0
MOST_LINES = 8
COLOURS = ("#3b82f6", "#d97706", "#059669", "#ef4444", "#8b5cf6", "#0891b2", "#db2777", "#5b8a14")
"""Each has a contrast of at least 3 to 1 with the panel in light and in dark."""
_STYLE = """
:root{--page:#fff;--panel:#f8fafc;--text:#0f172a;--soft:#475569;--grid:#e2e8f0}
@media (prefers-color-scheme:dark){:root{--page:#0f172a;--panel:#1e293b;--text:#f1f5f9;--soft:#94a3b8;--grid:#334155}}
text{font-family:system-ui,sans-serif;fill:var(--text)}.soft{fill:var(--soft);font-size:12px}
.title{font-size:15px;font-weight:600}.page{fill:var(--page)}.panel{fill:var(--panel)}.grid{stroke:var(--grid)}
polyline{fill:none;stroke-width:2}
"""


@dataclass(frozen=True, slots=True)
class Plot:
    """One panel: its lines by name."""

    title: str
    unit: Unit
    lines: Mapping[str, Sequence[Point]]


def draw(title: str, plots: Sequence[Plot], start: float, end: float) -> str:
    """Returns the SVG of a dashboard over this time, in seconds since 1970. A panel draws the eight lines with the
    highest values, and names how many others there are."""
    rows = math.ceil(len(plots) / COLUMNS)
    height = 56 + rows * (PANEL_HEIGHT + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height:.0f}"/>',
        f'<text x="{GAP}" y="36" style="font-size:20px;font-weight:700">{escape(title)}</text>',
    ]
    for number, plot in enumerate(plots):
        row, column = divmod(number, COLUMNS)
        x, y = GAP + column * (PANEL_WIDTH + GAP), 56 + row * (PANEL_HEIGHT + GAP)
        parts.append(f'<g transform="translate({x:.0f} {y:.0f})">{"".join(_panel(plot, start, end))}</g>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(plot: Plot, start: float, end: float) -> Iterable[str]:
    yield f'<rect class="panel" width="{PANEL_WIDTH:.0f}" height="{PANEL_HEIGHT:.0f}" rx="8"/>'
    yield f'<text class="title" x="14" y="23">{escape(plot.title)}</text>'
    lines = sorted(plot.lines.items(), key=lambda item: (-max(v for _, v in item[1]), item[0]))
    top = nice_maximum(max((v for _, line in lines for _, v in line), default=0.0), plot.unit)
    left, bottom = AXIS, PANEL_HEIGHT - LEGEND - 16
    width, height = PANEL_WIDTH - AXIS - 14, bottom - TITLE
    for part in range(5):
        y = bottom - height * part / 4
        yield f'<line class="grid" x1="{left:.0f}" x2="{left + width:.0f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        if part % 2 == 0:
            label = escape(value_text(top * part / 4, plot.unit))
            yield f'<text class="soft" x="{left - 6:.0f}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    for part, anchor in ((0, "start"), (1, "end")):
        text = f"{(end - start) * part / 60:.0f} min"
        yield (
            f'<text class="soft" x="{left + width * part:.0f}" y="{bottom + 16:.0f}" text-anchor="{anchor}">'
            f"{text}</text>"
        )
    if not lines:
        yield f'<text class="soft" x="{left + 12:.0f}" y="{TITLE + 30:.0f}">no data</text>'
    x = 14.0
    for number, (name, line) in enumerate(lines[:MOST_LINES]):
        points = " ".join(
            f"{left + width * (t - start) / (end - start):.1f},{bottom - height * v / top:.1f}"
            for t, v in line
        )
        yield f'<polyline stroke="{COLOURS[number]}" points="{points}"/>'
        text = f"{len(lines) - number} more" if x > PANEL_WIDTH - 180 and len(lines) - number > 1 else name
        if x <= PANEL_WIDTH - 90:
            shown = text if len(text) <= 24 else f"{text[:23]}…"
            yield (
                f'<rect x="{x:.0f}" y="{PANEL_HEIGHT - 22:.0f}" width="10" height="10" fill="{COLOURS[number]}"/>'
                f'<text class="soft" x="{x + 14:.0f}" y="{PANEL_HEIGHT - 13:.0f}">{escape(shown)}</text>'
            )
            x = x + 32 + 6.6 * len(shown) if text == name else PANEL_WIDTH


def nice_maximum(value: float, unit: Unit) -> float:
    """The end of an axis: at least the value, and round."""
    if value <= 0:
        return 1.0
    base = 1024.0 if unit is Unit.BYTES else 10.0
    scale = base ** math.floor(math.log(value, base))
    steps = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) if unit is Unit.BYTES else (1, 2, 4, 8, 10)
    return next(scale * step for step in steps if scale * step >= value * 0.999_999)


def value_text(value: float, unit: Unit) -> str:
    """A value of an axis, short and with its unit."""
    if unit is Unit.BYTES:
        for name in ("B", "KiB", "MiB", "GiB"):
            if value < 1024 or name == "GiB":
                return f"{value:.3g} {name}"
            value /= 1024
    if unit is Unit.SECONDS:
        return f"{value:.3g} s"
    return f"{value:.3g}" if value < 10_000 else f"{value:,.0f}"
