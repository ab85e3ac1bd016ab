"""A page for people who do not use the terminal: tiles, sections with tables and bars. HTML and Markdown draw it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from iceberg_maint.report.formatting import escape_control_chars


@dataclass(frozen=True, slots=True)
class Tile:
    """One number in large type, with what it counts."""

    value: str
    label: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a bar chart. `text` is the value in units."""

    label: str
    value: float
    text: str


@dataclass(frozen=True, slots=True)
class Sparkline:
    """One small line of values by day. `text` says what it shows."""

    label: str
    points: tuple[tuple[int, float], ...]
    text: str


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, sentences, and a table, bars or sparklines. `right` has the indexes of the columns of numbers, `unbroken`
    those of other columns whose cells stay on one line. `omitted` counts the rows that the page leaves out."""

    heading: str
    sentences: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    right: frozenset[int] = frozenset()
    unbroken: frozenset[int] = frozenset()
    bars: tuple[Bar, ...] = ()
    sparklines: tuple[Sparkline, ...] = ()
    omitted: int = 0


@dataclass(frozen=True, slots=True)
class Page:
    """A whole page. `made` is the line below the title."""

    title: str
    made: str
    sentence: str
    tiles: tuple[Tile, ...]
    sections: tuple[Section, ...]


def first_rows(rows: Sequence[tuple[str, ...]], most: int) -> tuple[tuple[tuple[str, ...], ...], int]:
    """The first rows, and the number of the others."""
    return tuple(rows[:most]), max(0, len(rows) - most)


_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|!~&])")


def render_markdown(page: Page) -> str:
    """The page as Markdown with tables. Names and messages are text: no markup of theirs takes effect."""
    return "\n".join(_markdown_lines(page)) + "\n"


def _markdown_lines(page: Page) -> Iterator[str]:
    yield f"# {markdown_text(page.title)}\n\n{markdown_text(page.made)}\n\n{markdown_text(page.sentence)}\n"
    yield from (f"- **{markdown_text(t.value)}** {markdown_text(t.label)}" for t in page.tiles)
    for section in page.sections:
        yield from _markdown_section(section)


def _markdown_section(section: Section) -> Iterator[str]:
    yield f"\n## {markdown_text(section.heading)}\n"
    yield from (f"{markdown_text(s)}\n" for s in section.sentences)
    yield from (f"- {markdown_text(b.label)}: {markdown_text(b.text)}" for b in section.bars)
    yield from (f"- {markdown_text(s.label)}: {markdown_text(s.text)}" for s in section.sparklines)
    if section.rows:
        yield f"| {' | '.join(map(markdown_text, section.columns))} |"
        yield f"|{'|'.join('---:' if n in section.right else '---' for n in range(len(section.columns)))}|"
        yield from (f"| {' | '.join(map(markdown_text, row))} |" for row in section.rows)
    if section.omitted:
        yield f"\nand {section.omitted:,} more"


def markdown_text(text: str) -> str:
    """The text on one line of Markdown, no character of it a mark."""
    return _MARKUP.sub(r"\\\1", _line(text))


def markdown_code(text: str) -> str:
    """The text as a code span of Markdown, by CommonMark: its fence is longer than every run of backticks in it."""
    line = _line(text)
    if "`" not in line:
        return f"`{line}`"
    fence = "`" * (1 + max(map(len, re.findall("`+", line))))
    return f"{fence} {line} {fence}"


def _line(text: str) -> str:
    return escape_control_chars(text).replace("\n", " ")


_STYLE = """
:root { color-scheme: light dark; --ink: #17202a; --soft: #5c6773; --line: #d8dee4; --paper: #ffffff;
  --tile: #f4f6f8; --bar: #2563a8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaee; --soft: #9aa6b2; --line: #333c46; --paper: #14181d;
  --tile: #1d2329; --bar: #6aa5e8; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 70rem; padding: 1.5rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p { margin: .3rem 0; } .made { color: var(--soft); font-size: .875rem; }
.tiles { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1.25rem 0; padding: 0; list-style: none; }
.tiles li { flex: 1 1 9rem; background: var(--tile); border-radius: .5rem; padding: .75rem 1rem; }
.tiles b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.tiles span { color: var(--soft); font-size: .875rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 600; } .t { white-space: nowrap; } .n { text-align: right; font-variant-numeric: tabular-nums;
  white-space: nowrap; }
td:first-child, .lines li, .bar span { overflow-wrap: anywhere; } td:first-child { min-width: 12rem; }
.bars { display: grid; grid-template-columns: fit-content(24rem) 1fr max-content; gap: .25rem .75rem; margin: .5rem 0;
  font-size: .9rem; align-items: center; }
.bar { display: contents; } .bars svg { width: 100%; height: .9rem; display: block; } rect { fill: var(--bar); }
.lines { list-style: none; margin: .5rem 0; padding: 0; font-size: .9rem; } .lines li { margin-bottom: .6rem; }
.lines svg { display: block; width: 100%; max-width: 20rem; height: 2rem; }
polyline { fill: none; stroke: var(--bar); stroke-width: 2; vector-effect: non-scaling-stroke; }
@media (max-width: 40rem) { body { padding: 1rem; } .bars { display: block; }
  .bar { display: grid; grid-template-columns: 1fr max-content; gap: 0 .75rem; margin-bottom: .5rem; }
  .bars svg { grid-column: 1 / -1; grid-row: 2; }
  table, tbody, tr { display: block; } thead { display: none; } tr { border-bottom: 1px solid var(--line); padding: .4rem 0; }
  td, td.n { display: inline-block; border: 0; padding: .1rem .9rem .1rem 0; text-align: left; white-space: normal;
    min-width: 0; }
  td:first-child { display: block; font-weight: 600; } td[data-column]::before { content: attr(data-column) ": "; color: var(--soft); } }
@page { margin: 12mm; }
@media print { :root { --ink: #000; --paper: #fff; --soft: #444; --tile: #fff; --line: #bbb; --bar: #444; }
  body { max-width: none; padding: 0; font-size: 10pt; } .tiles li { border: 1px solid var(--line); }
  .wide { overflow: visible; } table { font-size: 7.5pt; } th, td { padding: .2rem .25rem; }
  td:first-child { min-width: 8rem; } .bars { grid-template-columns: 14rem 1fr 14rem; }
  tr, .tiles li { break-inside: avoid; } h2 { break-after: avoid; } }
"""
_SEPARATOR = re.compile(r"(?<=\w)(?:[_/=](?=\w)|\.(?=[^\W\d]))")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def render_html(page: Page) -> str:
    """The page as one HTML document. Names and messages are text: no markup of theirs takes effect."""
    return "\n".join(_html_lines(page)) + "\n"


def _html_lines(page: Page) -> Iterator[str]:
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield f"<title>{_text(page.title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>"
    yield f'<h1>{_text(page.title)}</h1>\n<p class="made">{_text(page.made)}</p>\n<p>{_text(page.sentence)}</p>'
    yield '<ul class="tiles">'
    yield from (f"<li><b>{_text(t.value)}</b><span>{_text(t.label)}</span></li>" for t in page.tiles)
    yield "</ul>"
    for section in page.sections:
        yield from _html_section(section)
    yield "</main>\n</body>\n</html>"


def _html_section(section: Section) -> Iterator[str]:
    yield f"<section>\n<h2>{_text(section.heading)}</h2>"
    yield from (f"<p>{_text(s)}</p>" for s in section.sentences)
    if section.bars:
        yield '<div class="bars">'
        most = max(b.value for b in section.bars) or 1
        yield from (_bar(b, most) for b in section.bars)
        yield "</div>"
    if section.sparklines:
        yield '<ul class="lines">'
        yield from (_sparkline(s) for s in section.sparklines)
        yield "</ul>"
    if section.rows:
        yield from _table(section)
    if section.omitted:
        yield f'<p class="made">and {section.omitted:,} more</p>'
    yield "</section>"


def _table(section: Section) -> Iterator[str]:
    # A narrow window shows each row as lines "column: value". The roles keep it a table for a screen reader then.
    heading = _text(section.heading)
    yield f'<div class="wide" role="region" aria-label="{heading}" tabindex="0"><table role="table">'
    yield '<thead role="rowgroup"><tr role="row">'
    yield from (
        f'<th scope="col" role="columnheader"{_class(n, section)}>{_text(c)}</th>'
        for n, c in enumerate(section.columns)
    )
    yield '</tr></thead>\n<tbody role="rowgroup">'
    for row in section.rows:
        cells = (
            f'<td role="cell"{_class(n, section)}{_column(n, section)}>{_cell(c, n, section)}</td>'
            for n, c in enumerate(row)
        )
        yield f'<tr role="row">{"".join(cells)}</tr>'
    yield "</tbody>\n</table></div>"


def _cell(text: str, column: int, section: Section) -> str:
    return _text(text) if column in section.unbroken else _breakable(text)


def _column(column: int, section: Section) -> str:
    """The column's name for narrow windows. The first column needs none."""
    return f' data-column="{_text(section.columns[column])}"' if column else ""


def _bar(bar: Bar, most: float) -> str:
    width = f"{100 * bar.value / most:.2f}"
    label = _text(bar.label)
    return (
        f'<div class="bar"><span>{_breakable(bar.label)}</span>'
        f'<svg viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="{label}: {_text(bar.text)}">'
        f'<rect width="{width}" height="10"/></svg><span class="n">{_text(bar.text)}</span></div>'
    )


def _sparkline(line: Sparkline) -> str:
    first, last = line.points[0][0], line.points[-1][0]
    most = max(value for _, value in line.points) or 1
    points = " ".join(
        f"{100 * (day - first) / max(1, last - first):.1f},{19 - 18 * value / most:.1f}"
        for day, value in line.points
    )
    label, text = _text(line.label), _text(line.text)
    return (
        f'<li><b>{_breakable(line.label)}</b> {text}<svg viewBox="0 0 100 20" preserveAspectRatio="none" role="img" '
        f'aria-label="{label}: {text}"><polyline points="{points}"/></svg></li>'
    )


def _class(column: int, section: Section) -> str:
    if column in section.right:
        return ' class="n"'
    return ' class="t"' if column in section.unbroken else ""


def _breakable(text: str) -> str:
    """The text, which may break after the separators of names."""
    return _SEPARATOR.sub(r"\g<0><wbr>", _text(text))


def _text(text: str) -> str:
    return escape(escape_control_chars(text).replace("\n", " "), quote=True)
