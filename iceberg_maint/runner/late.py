"""The errors of catalogs and tables that did not answer in time (ICM-179)."""

from __future__ import annotations

from iceberg_maint.bounded_calls import MOST_LOST, LateError, Limit
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.errors import IcebergMaintError

_STAYS = "What is known of it stays as it is."


def late_table(table: TableId, late: LateError, within: float | None = None) -> IcebergMaintError:
    """Returns the error of a table that was not looked at in time. `within` are the seconds that the caller had."""
    name = table.catalog
    time = _time(name, late, within)
    match late.limit:
        case Limit.CALL:
            what = f"{table}: catalog '{name}' or the store of the table gave no answer within {time}."
        case Limit.ALL:
            what = f"{table}: the pass over catalog '{name}' did not come to it within {time}."
        case Limit.LOST:
            what = (
                f"{table}: {MOST_LOST} other tables of catalog '{name}' gave no answer within {time}, so the pass leaves "
                "out the rest."
            )
    return IcebergMaintError("ICM-179", f"{what} {_STAYS}", _fix(name, late))


def late_catalog(name: str, late: LateError, within: float | None = None) -> IcebergMaintError:
    """Returns the error of a catalog that did not list its tables in time."""
    what = f"catalog '{name}' did not list its tables within {_time(name, late, within)}."
    return IcebergMaintError("ICM-179", f"{what} {_STAYS}", _fix(name, late))


def late_warehouse(name: str, late: LateError, within: float | None = None) -> IcebergMaintError:
    """Returns the error of a catalog whose warehouse did not answer in time."""
    what = f"the warehouse of catalog '{name}' gave no answer within {_time(name, late, within)}."
    return IcebergMaintError("ICM-179", what, _fix(name, late))


def _setting(name: str, late: LateError) -> str:
    return f"catalogs.{name}.{'pass_seconds' if late.limit is Limit.ALL else 'look_seconds'}"


def _time(name: str, late: LateError, within: float | None) -> str:
    if within is not None and late.seconds == within:
        return f"{late.seconds:g} seconds, the time of a tick"
    return f"{late.seconds:g} seconds ({_setting(name, late)})"


def _fix(name: str, late: LateError) -> str:
    return (
        "look for what does not answer: the catalog, the store, a network file system; or raise "
        f"{_setting(name, late)}."
    )
