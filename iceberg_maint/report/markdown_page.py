"""Draws a page as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator

from iceberg_maint.report.formatting import escape_control_chars
from iceberg_maint.report.page import Page, Section

_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|!~&])")


def render_markdown(page: Page) -> str:
    """The page as Markdown with tables. Names and messages are text: no markup of theirs takes effect."""
    return "\n".join(_lines(page)) + "\n"


def _lines(page: Page) -> Iterator[str]:
    yield f"# {markdown_text(page.title)}\n\n{markdown_text(page.made)}\n\n{markdown_text(page.sentence)}\n"
    yield from (f"- **{markdown_text(t.value)}** {markdown_text(t.label)}" for t in page.tiles)
    for section in page.sections:
        yield from _section(section)


def _section(section: Section) -> Iterator[str]:
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
