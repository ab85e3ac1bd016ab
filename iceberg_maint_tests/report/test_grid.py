"""Tables on narrow terminals."""

from __future__ import annotations

import io

from rich.console import Console

from iceberg_maint.report.grid import Column, draw_grid, write

COLUMNS = (
    Column("table"),
    Column("due", right=True),
    Column("why", prose=True),
    Column("files", right=True, priority=2),
    Column("small", right=True, priority=1, is_constant_shown=False),
)
ROWS = [
    ["db.a_table_with_a_long_name", "11 of 21", "enough small files to gain from a rewrite", "231", "7"],
    ["db.b", "0 of 4", "healthy", "4", "7"],
]


def drawn(width: int, rows: list[list[str]] = ROWS) -> list[str]:
    text = io.StringIO()
    draw_grid(Console(file=text, width=width, highlight=False), COLUMNS, rows)
    return text.getvalue().splitlines()


def test_wide_terminal_shows_all_but_the_constant_column() -> None:
    assert drawn(200)[0].split() == ["table", "due", "why", "files"]
    assert [line.split()[-1] for line in drawn(200)] == ["files", "231", "4"]


def test_narrow_terminal_wraps_prose_between_words_before_it_drops_a_column() -> None:
    assert drawn(77) == [
        "table                             due  why                              files",
        "db.a_table_with_a_long_name  11 of 21  enough small files to gain from    231",
        "                                       a rewrite",
        "db.b                           0 of 4  healthy                              4",
    ]


def test_narrower_terminal_drops_the_optional_column_and_names_it() -> None:
    lines = drawn(64)
    assert lines[0].split() == ["table", "due", "why"]
    assert lines[-1] == "not shown at this width: files"
    assert max(map(len, lines)) <= 64


def test_name_wider_than_the_terminal_stays_whole_in_blocks() -> None:
    lines = drawn(30)
    assert lines[0] == "db.a_table_with_a_long_name"
    assert lines[1] == "    due 11 of 21, why enough"


def test_brackets_of_a_name_are_no_markup() -> None:
    assert drawn(200, [[r"\[red]x", "1", "w", "1", "1"]])[1].startswith("[red]x")


def test_long_word_of_prose_is_not_broken() -> None:
    text = io.StringIO()
    write(Console(file=text, width=20, highlight=False), "run iceberg-maint-" + "x" * 30 + " now", "  ")
    assert text.getvalue().splitlines() == ["run", "  iceberg-maint-" + "x" * 30, "  now"]


def test_long_word_stands_alone_and_leaves_the_other_lines_in_the_width() -> None:
    console = Console(file=io.StringIO(), width=40)
    with console.capture() as capture:
        write(console, f"the file is gone {'x' * 60} and a reader of the table waits for it", "  ")
    lines = capture.get().splitlines()
    assert "".join(lines).count("x" * 60) == 1
    assert [line for line in lines if len(line) > 40] == ["  " + "x" * 60]


def test_indent_of_later_lines_leaves_the_first_its_whole_width() -> None:
    text = io.StringIO()
    write(Console(file=text, width=16, highlight=False), "ok    seven seven seven", " " * 6)
    assert text.getvalue().splitlines() == ["ok    seven", "      seven", "      seven"]
    text = io.StringIO()
    write(Console(file=text, width=17, highlight=False), "ok    seven seven seven", " " * 6)
    assert text.getvalue().splitlines() == ["ok    seven seven", "      seven"]
