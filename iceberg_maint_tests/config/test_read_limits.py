"""`read_concurrency`, `read_timeout_seconds` and `cycle_timeout_seconds` of a catalog: how they are read and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from iceberg_maint.errors import ConfigurationError
from iceberg_maint.machine.bounded_calls import CallLimits
from iceberg_maint_tests.config.test_approved_locations import load

LAKE = "catalogs.lake"


def test_limits_are_those_of_the_file_or_the_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, "").catalogs["lake"].cycle_limits == CallLimits(8, 600, 3600)
    text = ", read_concurrency: 64, read_timeout_seconds: 1.5, cycle_timeout_seconds: 604800"
    assert load(tmp_path, text).catalogs["lake"].cycle_limits == CallLimits(64, 1.5, 604_800)


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("read_concurrency: 0", f"{LAKE}.read_concurrency is 0. It must be at least 1 and at most 64."),
        ("read_concurrency: 65", f"{LAKE}.read_concurrency is 65. It must be at least 1 and at most 64."),
        ("read_concurrency: 2.5", f"{LAKE}.read_concurrency is 2.5. It must be a whole number from 1 to 64."),
        (
            "read_timeout_seconds: 0.5",
            f"{LAKE}.read_timeout_seconds is 0.5. It must be at least 1 and at most 604,800.",
        ),
        (
            "read_timeout_seconds: .nan",
            f"{LAKE}.read_timeout_seconds is nan. It must be at least 1 and at most 604,800.",
        ),
        (
            "read_timeout_seconds: null",
            f"{LAKE}.read_timeout_seconds is null. It must be a number from 1 to 604,800.",
        ),
        (
            "cycle_timeout_seconds: .inf",
            f"{LAKE}.cycle_timeout_seconds is inf. It must be at least 1 and at most 604,800.",
        ),
        (
            "cycle_timeout_seconds: 604801",
            f"{LAKE}.cycle_timeout_seconds is 604801. It must be at least 1 and at most 604,800.",
        ),
        (
            "read_timeout_seconds: 60, cycle_timeout_seconds: 59",
            f"{LAKE}.cycle_timeout_seconds is 59. It must be at least read_timeout_seconds, which is 60.",
        ),
    ],
)
def test_limits_that_no_pass_can_keep_are_refused(tmp_path: Path, text: str, fact: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load(tmp_path, f", {text}")
    assert str(refused.value).startswith(f"ICM-100 {fact}")
