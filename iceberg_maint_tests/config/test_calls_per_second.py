"""`catalogs.NAME.calls_per_second`: how it is read and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from iceberg_maint.errors import ConfigurationError
from iceberg_maint_tests.config.test_approved_locations import load

KEY = "catalogs.lake.calls_per_second"
RANGE = "It must be a number above 0 and at most 10,000."


@pytest.mark.parametrize(("text", "value"), [("0.5", 0.5), ("10", 10.0), ("10000", 10_000.0)])
def test_budget_is_a_number_of_calls(tmp_path: Path, text: str, value: float) -> None:
    assert load(tmp_path, f", calls_per_second: {text}").catalogs["lake"].calls_per_second == value


def test_without_the_setting_there_is_no_budget(tmp_path: Path) -> None:
    assert load(tmp_path, "").catalogs["lake"].calls_per_second is None


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("0", f"{KEY} is 0. {RANGE}"),
        ("-1", f"{KEY} is -1. {RANGE}"),
        ("10001", f"{KEY} is 10001. {RANGE}"),
        (".nan", f"{KEY} is nan. {RANGE}"),
        (".inf", f"{KEY} is inf. {RANGE}"),
        ("true", f"{KEY} is true. It must be a number above 0 and at most 10,000."),
        ("'5'", f"{KEY} is '5'. It must be a number above 0 and at most 10,000."),
        ("5/s", f"{KEY} is '5/s'. It must be a number above 0 and at most 10,000."),
    ],
)
def test_budget_that_is_no_number_of_calls_is_refused(tmp_path: Path, text: str, fact: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load(tmp_path, f", calls_per_second: {text}")
    assert str(refused.value).startswith(f"ICM-100 {fact}")
