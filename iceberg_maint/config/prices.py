"""Prices: what compute and storage cost, for reports."""

from __future__ import annotations

from dataclasses import dataclass

from iceberg_maint.config.document import ReportSection
from iceberg_maint.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class PricesConfig:
    """Prices in one currency. None: not stated."""

    currency: str = "USD"
    run_hour_price: float | None = None
    stored_gib_month_price: float | None = None


def prices_config(section: ReportSection) -> PricesConfig:
    """Returns the checked prices. Raises ConfigurationError ICM-100 for a negative price."""
    for name in ("run_hour_price", "stored_gib_month_price"):
        price = getattr(section, name)
        if price is not None and not 0 <= price < float("inf"):
            raise ConfigurationError(
                "ICM-100",
                f"report.{name} is {price}. It must be at least 0.",
                f"set report.{name} to a price.",
            )
    return PricesConfig(section.currency, section.run_hour_price, section.stored_gib_month_price)
