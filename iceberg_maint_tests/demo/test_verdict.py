from __future__ import annotations

import pytest

from iceberg_maint.core.health.metrics import Measured, PartitionHealth, TableHealth
from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.model.reasons import Decision, Reason, Verdict
from iceberg_maint.demo.duckdb_reader import Comparison
from iceberg_maint.demo.heal import DemoState, End, judge
from iceberg_maint.demo.tables import TABLES

pytestmark = pytest.mark.slow

BY_NAME = {t.name: t for t in TABLES}
SAME = Comparison(10, 10, 0, 0)


def state(snapshot_id: int, verdict: Verdict, reason: Reason) -> DemoState:
    measured = Measured(
        TableId("lake", ("demo",), "t"),
        "uuid",
        snapshot_id,
        1,
        "file:///m.json",
        TableHealth(),
        {"__all__": PartitionHealth(data_files=3)},
        1,
    )
    return DemoState(
        measured, Decision("lake.demo.t", Operation.REWRITE_DATA_FILES, verdict, reason, snapshot_id)
    )


SICK = state(1, Verdict.RUN, Reason.SMALL_FILES)
HEALTHY = state(2, Verdict.SKIP, Reason.HEALTHY)


def test_unhealthy_table_that_became_healthy_is_healed() -> None:
    result = judge(BY_NAME["weather"], SICK, HEALTHY, SAME)
    assert (result.end, result.good) == (End.HEALED, True)
    assert result.document()["after"]["decision"] == "SKIP"


@pytest.mark.parametrize(
    "rows", [Comparison(10, 9, 1, 0), Comparison(10, 10, 1, 1), Comparison(10, 11, 0, 1)]
)
def test_any_differing_row_is_not_good_however_healthy(rows: Comparison) -> None:
    result = judge(BY_NAME["weather"], SICK, HEALTHY, rows)
    assert (result.end, result.good) == (End.ROWS_DIFFER, False)


@pytest.mark.parametrize("reason", [Reason.BACK_OFF, Reason.QUARANTINED])
def test_table_that_waits_is_still_unhealthy(reason: Reason) -> None:
    result = judge(BY_NAME["weather"], SICK, state(2, Verdict.DEFER, reason), SAME)
    assert (result.end, result.good) == (End.UNHEALTHY, False)


def test_control_whose_snapshot_moved_was_touched() -> None:
    before = state(1, Verdict.SKIP, Reason.HEALTHY)
    assert judge(BY_NAME["control"], before, before, SAME).end is End.UNTOUCHED
    result = judge(BY_NAME["control"], before, HEALTHY, SAME)
    assert (result.end, result.good) == (End.TOUCHED, False)


def test_table_that_is_due_and_refused_is_still_unhealthy() -> None:
    refused = state(2, Verdict.REFUSE, Reason.EQUALITY_DELETES)
    result = judge(BY_NAME["cdc_planes"], SICK, refused, SAME)
    assert (result.end, result.good) == (End.UNHEALTHY, False)
