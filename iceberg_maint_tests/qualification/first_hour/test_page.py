"""The page of the first hour can be run: its steps are known, and the comparison sees a difference."""

from __future__ import annotations

import pytest

from iceberg_maint.cli import COMMANDS
from iceberg_maint_tests.qualification.first_hour.page import PAGE, Command, Deed, missing, steps


def test_page_has_every_stage_of_the_first_hour() -> None:
    found = steps(PAGE.read_text("utf-8"))
    lines = [s.line for s in found if isinstance(s, Command) and s.line.startswith("iceberg-maint ")]
    names = [line.split()[1] for line in lines]
    assert set(names) - {"--version"} <= set(COMMANDS)
    for name in (
        "demo",
        "init",
        "doctor",
        "tables",
        "why",
        "plan",
        "run",
        "proof",
        "attest",
        "release",
        "pause",
    ):
        assert name in names
    deeds = [s.what for s in found if isinstance(s, Deed)]
    assert deeds == ["write 6 files", "write 6 files", "hide a file", "restore the file", "write 6 files"]
    assert [s.exit_code for s in found if isinstance(s, Command)].count(1) == 1


@pytest.mark.parametrize(
    ("promised", "lacking"),
    [
        (("one two", "four"), []),
        (("two …four",), []),
        (("four", "one"), ["one"]),
        (("five",), ["five"]),
    ],
)
def test_promised_text_is_searched_in_order_apart_from_spaces(
    promised: tuple[str, ...], lacking: list[str]
) -> None:
    assert missing(Command("x", promised), "one\n  two three\nfour") == lacking
