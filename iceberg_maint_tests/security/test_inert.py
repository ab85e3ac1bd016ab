"""Text of others on a terminal: shown, not obeyed."""

from __future__ import annotations

import pytest

from iceberg_maint.report.formatting import escape_control_chars

pytestmark = pytest.mark.seconds


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("lake.db.events: fine\n", "lake.db.events: fine\n"),
        ("日本語 é", "日本語 é"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\x07\x00", "a\\x07\\x00"),
        ("\u202eelbat", "\\u202eelbat"),
        ("\x9b2J", "\\x9b2J"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
    ],
)
def test_what_steers_a_terminal_is_written_out(text: str, shown: str) -> None:
    assert escape_control_chars(text) == shown


def test_styles_of_our_own_drawing_stay_and_nothing_else() -> None:
    text = "\x1b[1;32mok\x1b[0m \x1b[2J\x1b]0;title\x07"
    assert escape_control_chars(text, styled=True) == "\x1b[1;32mok\x1b[0m \\x1b[2J\\x1b]0;title\\x07"
