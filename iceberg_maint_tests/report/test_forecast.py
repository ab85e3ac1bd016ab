"""The forecast of the day on which a number reaches its threshold."""

from __future__ import annotations

from iceberg_maint.ports.stored import HealthDay
from iceberg_maint.report.fleet import Forecast, forecast, series


def points(*values: float) -> tuple[tuple[int, float], ...]:
    return tuple(enumerate(values, 100))


def test_forecast_of_steady_growth_is_exact():
    assert forecast(points(10, 12, 14, 16), 20, 103) == Forecast(
        2.0, 2.0, 4, "median slope of 4 measured days"
    )


def test_forecast_counts_from_today_not_from_the_last_measured_day():
    assert forecast(points(10, 12, 14, 16), 20, 104).in_days == 1.0


def test_forecast_with_one_odd_day_keeps_the_slope():
    odd = forecast(points(10, 12, 14, 90, 18, 20, 22), 40, 106)
    # The day after the odd one is a drop by half, so three days count.
    assert odd == Forecast(None, None, 3, "no forecast: 3 of 4 measured days since the last drop")
    assert forecast(points(10, 12, 14, 22, 18, 20, 22), 40, 106).per_day == 2.0


def test_forecast_starts_after_the_last_drop():
    assert forecast(points(50, 60, 5, 6, 7, 8), 10, 105) == Forecast(
        2.0, 1.0, 4, "median slope of 4 measured days"
    )


def test_forecast_of_flat_numbers_says_that_they_do_not_grow():
    assert forecast(points(5, 5, 5, 5), 10, 103) == Forecast(
        None, 0.0, 4, "no forecast: the number does not grow"
    )


def test_forecast_of_few_days_says_how_many():
    assert forecast((), 10, 103).why == "no forecast: 0 of 4 measured days since the last drop"


def test_forecast_beyond_a_year_is_none():
    slow = forecast(points(1, 1.01, 1.02, 1.03), 10, 103)
    assert (slow.in_days, slow.why) == (None, "no forecast: the threshold is more than 365 days away")


def test_forecast_at_the_threshold_is_now():
    assert forecast(points(7, 8, 9, 10), 10, 103).in_days == 0.0


def test_series_omits_days_that_lack_the_metric():
    days = (HealthDay(2, {"a": 1}), HealthDay(1, {"a": 3, "b": 2}), HealthDay(3, {"b": 5}))
    assert series(days, "a") == ((1, 3), (2, 1))
