"""Tables that fit the terminal: columns give way by priority, and no name is cut.

A table that is too wide loses columns in this order: columns with one value in all rows, then optional columns, the
highest priority number first. Columns of prose are wrapped between words. If that does not suffice, each row becomes
a block: its first column on a line, the others below it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from iceberg_maint.report import formatting

_GAP = "  "
_WORD = re.compile(r"\S+")
_MIN_PROSE = 24
"""Width below which prose is not wrapped further."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `priority` 0 always stays; others give way, the highest number first. `prose` may be wrapped
    between words. `is_constant_shown` keeps the column although all rows have the same value."""

    title: str
    right: bool = False
    priority: int = 0
    prose: bool = False
    is_constant_shown: bool = True


def draw_grid(
    console: Console, columns: Sequence[Column], rows: Sequence[Sequence[str]], indent: int = 0
) -> None:
    """Draws the rows; cells are rich markup. Names the columns that the width leaves out."""
    texts = [[Text.from_markup(cell) for cell in row] for row in rows]
    width = console.width - indent
    shown = _shown(columns, texts, width)
    widths = _widths(columns, texts, shown, width)
    margin = " " * indent
    if widths is None:
        shown = [n for n in range(len(columns)) if not _is_dropped(columns, texts, n)]
        _draw_blocks(console, columns, texts, shown, margin)
    else:
        header = [Text(columns[n].title, style="bold") for n in shown]
        for row in (header, *([text[n] for n in shown] for text in texts)):
            _draw_row(console, [columns[n] for n in shown], row, widths, margin)
    hidden = [c.title for n, c in enumerate(columns) if n not in shown and not _is_dropped(columns, texts, n)]
    if hidden:
        write(console, f"[dim]{margin}not shown at this width: {', '.join(hidden)}[/]")


def write(console: Console, markup: str, indent: str = "") -> None:
    """Prints prose wrapped between words. Lines after the first begin with `indent`. A word that is longer than
    the line stays whole."""
    text = Text.from_markup(markup)
    lines = _wrapped(text, console.width, len(indent)) or [text]
    for number, line in enumerate(lines):
        _print(console, Text(indent) + line if number else line)


def _print(console: Console, line: Text) -> None:
    line.rstrip()
    console.print(line, soft_wrap=True)


def _is_dropped(columns: Sequence[Column], texts: Sequence[Sequence[Text]], number: int) -> bool:
    """Whether all of several rows have the same value in a column that does not matter then, or no value."""
    values = {row[number].plain for row in texts}
    if values == {""}:
        return True
    return not columns[number].is_constant_shown and len(texts) > 1 and len(values) == 1


def _shown(columns: Sequence[Column], texts: Sequence[Sequence[Text]], width: int) -> list[int]:
    shown = [n for n in range(len(columns)) if not _is_dropped(columns, texts, n)]
    optional = sorted((n for n in shown if columns[n].priority), key=lambda n: -columns[n].priority)
    for number in optional:
        if _widths(columns, texts, shown, width) is not None:
            break
        shown.remove(number)
    return shown


def _widths(
    columns: Sequence[Column], texts: Sequence[Sequence[Text]], shown: Sequence[int], width: int
) -> list[int] | None:
    """The widths of the shown columns; None if the table does not fit."""
    natural = [max(len(columns[n].title), *(t[n].cell_len for t in texts), 0) for n in shown]
    excess = sum(natural) + len(_GAP) * (len(shown) - 1) - width
    if excess <= 0:
        return natural
    for place, number in enumerate(shown):
        if not columns[number].prose:
            continue
        longest = max((len(w) for t in texts for w in t[number].plain.split()), default=0)
        floor = min(natural[place], max(longest, _MIN_PROSE, len(columns[number].title)))
        taken = min(excess, natural[place] - floor)
        natural[place] -= taken
        excess -= taken
    return natural if excess <= 0 else None


def _draw_row(
    console: Console, columns: Sequence[Column], row: Sequence[Text], widths: Sequence[int], margin: str
) -> None:
    cells = [_wrapped(text, w) for text, w in zip(row, widths, strict=True)]
    for parts in zip_longest(*cells, fillvalue=Text("")):
        line = Text(margin)
        for place, (column, part, width) in enumerate(zip(columns, parts, widths, strict=True)):
            gap = " " * (width - part.cell_len)
            line = line + (_GAP if place else "") + (Text(gap) + part if column.right else part + Text(gap))
        _print(console, line)


def _wrapped(text: Text, width: int, indent: int = 0) -> list[Text]:
    """The text in lines of this width, those after the first narrower by `indent`, broken between words only. A longer
    word is a longer line of its own."""
    if text.cell_len <= width and "\n" not in text.plain:
        return [text]
    lines = [
        part
        for number, line in enumerate(text.split("\n", allow_blank=True))
        for part in line.divide(_breaks(line.plain, width - (indent if number else 0), width - indent))
    ]
    for line in lines:
        line.rstrip()
    return lines


def _breaks(line: str, first: int, width: int) -> list[int]:
    """Where the line is broken: the starts of words. `first` is the width up to the first break."""
    breaks = [0]
    for word in _WORD.finditer(line):
        before = line[breaks[-1] : word.start()]
        if before.strip() and cell_len(before + word.group()) > (first if len(breaks) == 1 else width):
            breaks.append(word.start())
    return breaks[1:]


def _draw_blocks(
    console: Console,
    columns: Sequence[Column],
    texts: Sequence[Sequence[Text]],
    shown: Sequence[int],
    margin: str,
) -> None:
    """Draws each row as its first column and, below it, the other values with their titles."""
    for row in texts:
        for line in _wrapped(row[shown[0]], console.width - len(margin)):
            _print(console, Text(margin) + line)
        values = [Text(f"{columns[n].title} ", style="dim") + row[n] for n in shown[1:] if row[n].plain]
        rest = Text(", ").join(values)
        for line in _wrapped(rest, console.width - len(margin) - 4):
            _print(console, Text(margin + "    ") + line)


def draw_more(console: Console, count: int) -> None:
    """Says how many rows are not drawn; nothing if there are none."""
    if count > 0:
        write(console, f"[dim]… and {formatting.number(count)} more (--json shows all)[/]")
