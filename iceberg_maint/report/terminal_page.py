"""Draws a page on the terminal: its numbers and its tables, without bars."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from iceberg_maint.report.grid import Column, draw_grid, write
from iceberg_maint.report.page import Page, Section

MOST_ROWS = 15


def draw_page(console: Console, page: Page) -> None:
    """Draws the page. A table has its first 15 rows."""
    write(console, f"[bold]{escape(page.sentence)}[/]")
    for tile in page.tiles:
        write(console, f"  {escape(tile.value)} {escape(tile.label)}")
    for section in page.sections:
        _draw(console, section)


def _draw(console: Console, section: Section) -> None:
    console.print()
    write(console, f"[bold]{escape(section.heading)}[/]")
    for sentence in section.sentences:
        write(console, escape(sentence), "  ")
    if section.rows:
        last = len(section.columns) - 1
        columns = [
            Column(name, right=n in section.right, priority=0 if n in (0, last) else n)
            for n, name in enumerate(section.columns)
        ]
        draw_grid(console, columns, [[escape(cell) for cell in row] for row in section.rows[:MOST_ROWS]])
    omitted = section.omitted + max(0, len(section.rows) - MOST_ROWS)
    if omitted:
        write(console, f"[dim]… and {omitted:,} more[/]")
