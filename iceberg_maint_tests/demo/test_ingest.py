from __future__ import annotations

import pytest

from iceberg_maint.core.model.reasons import Reason, Verdict
from iceberg_maint.demo import tables
from iceberg_maint.demo.definitions import APPENDS, ingest
from iceberg_maint.demo.heal import state_of
from iceberg_maint.demo.workspace import table_id
from iceberg_maint_tests.demo.conftest import SmallLake

pytestmark = pytest.mark.slow


def test_one_ingest_makes_a_new_month_due(small_lake: SmallLake) -> None:
    tables.build_flights_by_month(small_lake.writers)
    tables.build_weather(small_lake.writers)
    said = ingest({"ICEBERG_MAINT_CONFIG": str(small_lake.place.config)})
    assert [line.partition(":")[0] for line in said] == ["lake.demo.flights_by_month", "lake.demo.weather"]
    seen = state_of(small_lake.context, table_id("flights_by_month"))
    due = {p.partition: p.reason for p in seen.decision.due()}
    assert due["time_hour_month=2014-01"] is Reason.SMALL_FILES
    assert seen.measured.partitions["time_hour_month=2014-01"].data_files == APPENDS
    assert state_of(small_lake.context, table_id("weather")).decision.verdict is Verdict.RUN
