"""Pages as HTML and Markdown: complete, alone, and blind to markup in names."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from iceberg_maint.cli.assess import AssessedTable, assessment_document, assessment_page
from iceberg_maint.report.page import Bar, Page, Section, Tile, first_rows, render_html, render_markdown

HOSTILE = "t<script>alert(1)</script>\"'&|`*_[x](http://evil)\x1b[31m\n# x"


class Reader(HTMLParser):
    """The tags, and every address that the page names."""

    VOID = frozenset({"meta", "rect", "wbr"})

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        self.addresses += [
            v or "" for name, v in attrs if name in ("src", "href", "action") or name[:2] == "on"
        ]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page(name: str = "db.t") -> Page:
    rows, omitted = first_rows([(name, "1"), (name, "2"), (name, "3")], 2)
    return Page(
        "Title",
        "made",
        f"About {name}.",
        (Tile("7", "files"),),
        (
            Section("Bars", bars=(Bar(name, 2, "2 files"), Bar("zero", 0, "none"))),
            Section("Rows", ("Text.",), ("table", "n"), rows, frozenset({1}), omitted=omitted),
        ),
    )


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    return reader


def test_names_break_after_their_separators_and_values_do_not_break():
    text = render_html(page("lake.db_a.t=2024/x 1.5 GiB"))
    assert "lake.<wbr>db_<wbr>a.<wbr>t=<wbr>2024/<wbr>x 1.5 GiB</td>" in text
    assert 'aria-label="lake.db_a.t=2024/x 1.5 GiB: 2 files"' in text


def test_row_names_its_columns_for_a_narrow_window_and_stays_a_table_for_a_screen_reader():
    text = render_html(page())
    assert '<tr role="row"><td role="cell">db.<wbr>t</td>' in text
    assert '<td role="cell" class="n" data-column="n">1</td></tr>' in text
    assert '<div class="wide" role="region" aria-label="Rows" tabindex="0"><table role="table">' in text


def test_html_page_is_whole_and_names_nothing_outside():
    text = render_html(page())
    reader = read(text)
    assert text.startswith('<!doctype html>\n<html lang="en">')
    assert (reader.tags.count("h1"), reader.tags.count("h2"), reader.tags.count("tr")) == (1, 2, 3)
    assert reader.addresses == []
    assert "http" not in text.replace("http-equiv", "")
    assert "url(" not in text
    assert 'aria-label="db.t: 2 files"' in text
    assert re.findall(r'rect width="([0-9.]+)"', text) == ["100.00", "0.00"]
    assert "and 1 more" in text


def test_hostile_name_adds_no_tag_to_the_html_page():
    hostile = [tag for tag in read(render_html(page(HOSTILE))).tags if tag != "wbr"]
    assert hostile == [tag for tag in read(render_html(page())).tags if tag != "wbr"]
    assert "\x1b" not in render_html(page(HOSTILE))


def test_markdown_page_has_the_rows_and_hostile_names_as_text():
    text = render_markdown(page())
    assert "| table | n |\n|---|---:|\n| db.t | 1 |\n| db.t | 2 |\n\nand 1 more\n" in text
    hostile = render_markdown(page(HOSTILE))
    assert len(hostile.splitlines()) == len(text.splitlines())
    assert "\\<script\\>" in hostile
    assert not re.search(r"(?<!\\)[`*\[<|]x?\(?http", hostile)


def test_page_without_bars_and_rows_is_drawn():
    empty = Page("T", "m", "s", (), (Section("Nothing", ("None.",)),))
    assert "table" not in read(render_html(empty)).tags
    assert render_markdown(empty).endswith("## Nothing\n\nNone.\n\n")


def table(name: str, before: int, after: int, due: int = 1) -> AssessedTable:
    return AssessedTable(
        table=name,
        data_files=before,
        data_bytes=1024,
        small_files=before,
        delete_files=0,
        equality_delete_files=0,
        snapshots=3,
        metadata_bytes=10,
        partitions=2,
        due_partitions=due,
        reasons=("small_files",) if due else (),
        backlog_bytes=512 * due,
        reads_before=before,
        reads_after=after,
    )


def test_assessment_counts_the_sick_and_puts_the_largest_gain_first():
    tables = [table("db.a", 10, 9), table("db.b", 100, 5), table("db.c", 4, 4, due=0)]
    document = assessment_document(tables, {"db.x": "ICM-101 unreadable"})
    assert document["summary"] == {
        "tables": 3,
        "sick": 2,
        "unreadable": 1,
        "data_bytes": 3072,
        "backlog_bytes": 1024,
        "reads_before": 114,
        "reads_after": 18,
    }
    assert [t["table"] for t in document["tables"]] == ["db.b", "db.a", "db.c"]
    assessment = assessment_page(tables, {"db.x": "ICM-101 unreadable"}, "made")
    assert assessment.sentence == "2 of 3 tables need maintenance."
    assert [s.heading for s in assessment.sections] == [
        "What readers pay",
        "Tables that need maintenance",
        "Not readable",
        "How this was made",
    ]
    assert [b.text for b in assessment.sections[0].bars] == ["100 → 5 files", "10 → 9 files"]
    assert [row[0] for row in assessment.sections[1].rows] == ["db.b", "db.a"]


def test_assessment_of_no_table_is_a_page():
    assert assessment_page([], {}, "made").sentence == "There are no tables."


@pytest.mark.parametrize("most", [0, 2, 5])
def test_first_rows_and_the_omitted_add_up(most: int):
    rows = [(str(n),) for n in range(3)]
    shown, omitted = first_rows(rows, most)
    assert len(shown) + omitted == 3
    assert list(shown) == rows[:most]
