"""The budget of the fleet: the checked section `fleet_budget`."""

from __future__ import annotations

import re

from iceberg_maint.config.document import FleetBudgetSection, ReportSection
from iceberg_maint.core.decisions.fleet_budget import FleetBudget
from iceberg_maint.errors import ConfigurationError

_HOURS = re.compile(r"([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d")
_SECONDS = {"hour": 3600, "day": 86_400}


def fleet_budget(section: FleetBudgetSection, report: ReportSection) -> FleetBudget:
    """Returns the checked budget. The cost becomes seconds of work, CPU hours become CPU seconds. Raises
    ConfigurationError ICM-100 for a period that is neither hour nor day, a cap that is not above 0, a budget without
    a cap, a cost without a price, and blackout hours that are no times of day."""
    if section.period not in _SECONDS:
        raise _error("period", section.period, "hour or day")
    for name in (
        "max_bytes",
        "max_cpu_hours",
        "max_commits",
        "max_cost",
        "cpus_per_run",
        "max_wait_seconds",
        "pay_back_seconds",
    ):
        value = getattr(section, name)
        if value is not None and not 0 < value < float("inf"):
            raise _error(name, value, "a number above 0")
    for window in section.blackout_hours:
        if not _HOURS.fullmatch(window):
            raise _error("blackout_hours", window, "times of day in UTC, as HH:MM-HH:MM")
    seconds = None
    if section.max_cost is not None:
        if not report.run_hour_price:
            raise ConfigurationError(
                "ICM-100",
                "fleet_budget.max_cost has no price of a run hour. It must have one above 0.",
                "set report.run_hour_price.",
            )
        seconds = section.max_cost / report.run_hour_price * 3600
    if all(
        c is None for c in (section.max_bytes, section.max_commits, section.max_cpu_hours, section.max_cost)
    ):
        raise ConfigurationError(
            "ICM-100",
            "fleet_budget has no cap. It must have at least one.",
            "set max_bytes, max_cpu_hours, max_commits or max_cost, or remove fleet_budget.",
        )
    return FleetBudget(
        period_seconds=_SECONDS[section.period],
        max_bytes=section.max_bytes,
        max_seconds=seconds,
        max_commits=section.max_commits,
        max_wait_seconds=section.max_wait_seconds,
        blackout_hours=tuple(section.blackout_hours),
        max_cpu_seconds=None if section.max_cpu_hours is None else section.max_cpu_hours * 3600,
        cpus_per_run=section.cpus_per_run,
        pay_back_seconds=section.pay_back_seconds,
    )


def _error(name: str, value: object, rule: str) -> ConfigurationError:
    return ConfigurationError(
        "ICM-100",
        f"fleet_budget.{name} is {value}. It must be {rule}.",
        f"set fleet_budget.{name} to {rule}.",
    )
