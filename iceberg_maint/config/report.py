"""The report on the fleet: what compute and storage cost, and where and when Dagster writes the report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from iceberg_maint.config.document import ReportSection
from iceberg_maint.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class ReportConfig:
    """Prices in one currency, None where not stated. Dagster makes the report by `schedule`, a cron expression in
    UTC, and writes it to `folder`, if there is one. The newest `keep_reports` reports stay there; None keeps all."""

    currency: str = "USD"
    run_hour_price: float | None = None
    stored_gib_month_price: float | None = None
    folder: Path | None = None
    keep_reports: int | None = ReportSection.model_fields["keep_reports"].default
    schedule: str = ReportSection.model_fields["schedule"].default


def report_config(section: ReportSection) -> ReportConfig:
    """Returns the checked settings. Raises ConfigurationError ICM-100 for a negative price, for fewer than one report to
    keep, and for a schedule that does not have five fields."""
    for name in ("run_hour_price", "stored_gib_month_price"):
        price = getattr(section, name)
        if price is not None and not 0 <= price < float("inf"):
            raise ConfigurationError(
                "ICM-100",
                f"report.{name} is {price}. It must be at least 0.",
                f"set report.{name} to a price.",
            )
    if section.keep_reports is not None and section.keep_reports < 1:
        raise ConfigurationError(
            "ICM-100",
            f"report.keep_reports is {section.keep_reports}. It must be at least 1.",
            "set report.keep_reports to a number of reports, or to null to keep all.",
        )
    if len(section.schedule.split()) != 5:
        raise bad_schedule(section.schedule)
    folder = Path(section.folder).expanduser() if section.folder else None
    return ReportConfig(
        section.currency,
        section.run_hour_price,
        section.stored_gib_month_price,
        folder,
        section.keep_reports,
        section.schedule,
    )


def bad_schedule(schedule: str) -> ConfigurationError:
    """Returns the error of a schedule that is no cron expression."""
    return ConfigurationError(
        "ICM-100",
        f"report.schedule is '{schedule}'. It must be a cron expression of five fields.",
        "set it to an expression such as '0 7 * * 1', Mondays at 7 UTC.",
    )
