"""A page for people who do not use the terminal: tiles, sections with tables and bars. HTML and Markdown draw it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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
