"""Moments at which something is killed, told by what the ledger and Dagster's storage have come to hold."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import dagster as dg
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError, ProgrammingError


class Moment(StrEnum):
    """Since when something new is there; ANY waits for nothing."""

    ANY = "any moment"
    RUN_STARTED = "a run has started"
    ATTEMPT_STARTED = "an attempt has started"
    FILES_WRITTEN = "its files are on record"
    SWAP_TRIED = "its swap is on record"
    OUTCOME_TOLD = "its outcome is on record"


_ROWS = {
    Moment.ATTEMPT_STARTED: "icm_attempt",
    Moment.FILES_WRITTEN: "icm_intent",
    Moment.SWAP_TRIED: "icm_try",
    Moment.OUTCOME_TOLD: "icm_outcome",
}


def since_now(moment: Moment, ledger: str, instance: dg.DagsterInstance) -> Callable[[], bool]:
    """Whether the moment has come, counted from this call."""
    if moment is Moment.ANY:
        return lambda: True
    if moment is Moment.RUN_STARTED:
        known = {r.run_id for r in started_runs(instance)}
        return lambda: any(r.run_id not in known for r in started_runs(instance))
    before = _count(ledger, _ROWS[moment])
    return lambda: _count(ledger, _ROWS[moment]) > before


def started_runs(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    """Runs of assets that Dagster takes for running."""
    started = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
    return [r for r in started if r.asset_selection]


def _count(ledger: str, table: str) -> int:
    engine = sa.create_engine(ledger, poolclass=sa.NullPool)
    try:
        with engine.connect() as connection:
            return int(connection.execute(sa.text(f"SELECT count(*) FROM {table}")).scalar_one())
    except (OperationalError, ProgrammingError):  # no ledger yet
        return 0
