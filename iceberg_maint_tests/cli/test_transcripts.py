"""The page of screens is what the program prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from iceberg_maint_tests.cli.transcripts import WIDTHS, page, transcript

pytestmark = pytest.mark.seconds

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "transcripts.md"


def test_page_of_screens_is_what_the_program_prints() -> None:
    assert PAGE.read_text("utf-8") == page(), (
        "Fix: python -m iceberg_maint_tests.cli.transcripts > docs/reference/transcripts.md"
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_of_a_screen_is_wider_than_the_terminal(width: int) -> None:
    for _, commands in transcript(width):
        for line, text in commands:
            own = [part for part in text.splitlines() if not part.startswith(("ICM-", "|", "Run `"))]
            assert [part for part in own if len(part) > width and "--markdown" not in line] == [], line
