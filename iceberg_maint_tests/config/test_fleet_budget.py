"""The section `fleet_budget`: caps in one unit, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from iceberg_maint.config import load_config
from iceberg_maint.core.decisions.fleet_budget import FleetBudget
from iceberg_maint.errors import ConfigurationError

HEAD = "catalogs:\n  lake: {type: jdbc, uri: 'sqlite:////tmp/c.db', warehouse: 'file:///tmp/w'}\n"


def budget_of(folder: Path, section: str) -> FleetBudget | None:
    path = folder / "config.yaml"
    path.write_text(HEAD + section, "utf-8")
    return load_config(path, {}, mounts="").fleet_budget


def test_file_without_section_has_no_budget(tmp_path: Path) -> None:
    assert budget_of(tmp_path, "") is None


def test_cpu_hours_become_cpu_seconds(tmp_path: Path) -> None:
    section = (
        "fleet_budget: {period: day, max_bytes: 10, max_cpu_hours: 8.0, "
        "max_commits: 7, max_wait_seconds: 60, blackout_hours: ['06:00-20:00']}\n"
    )
    assert budget_of(tmp_path, section) == FleetBudget(86_400, 10, 7, 60, ("06:00-20:00",), 28_800.0)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{}", "fleet_budget has no cap. It must have at least one."),
        ("{max_commits: 0}", "fleet_budget.max_commits is 0. It must be a number above 0."),
        ("{max_bytes: 1, period: week}", "fleet_budget.period is week. It must be hour or day."),
        (
            "{max_bytes: 1, blackout_hours: ['6-20']}",
            "fleet_budget.blackout_hours is 6-20. It must be times of day in UTC, as HH:MM-HH:MM.",
        ),
    ],
)
def test_wrong_section_is_refused(tmp_path: Path, section: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        budget_of(tmp_path, f"fleet_budget: {section}\n")
    assert (refused.value.code, refused.value.message) == ("ICM-100", message)
