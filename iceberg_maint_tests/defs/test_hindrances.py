"""Failing checks of partitions name what keeps the whole table from being maintained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import dagster as dg
import pytest

from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.decisions.table_decision import combine_decisions
from iceberg_maint.core.health.metrics import PartitionHealth
from iceberg_maint.core.model.ids import DATA_OPERATIONS
from iceberg_maint.core.model.other_writers import PendingPublish, PublishKind
from iceberg_maint.defs.assets.partition_checks import CheckedTable, partition_evaluations
from iceberg_maint.loop.fleet.stored_decisions import decisions_of
from iceberg_maint.report.deferrals import deferral
from iceberg_maint_tests.defs.conftest import NAMES
from iceberg_maint_tests.support.core.values import NOW_MS, measured_of, policy_of

pytestmark = pytest.mark.slow

SICK = PartitionHealth(data_files=10, data_bytes=100, small_files=10, small_bytes=100, last_change_ms=NOW_MS)


@pytest.mark.parametrize(
    ("facts", "hindrance"),
    [
        ({}, "(rewrite_data_files.min_input_files)"),
        (
            {"uncommon_types": {"s.at": "geometry"}},
            "; deferred by column s.at (geometry), which no operation on data can read (ICM-134)",
        ),
        (
            {"wrong_property": "write.parquet.page-row-limit = 0; rule"},
            "; deferred by the table property write.parquet.page-row-limit = 0; rule (ICM-180)",
        ),
        (
            {"pending_publishes": (PendingPublish(PublishKind.BRANCH, "audit", 7, NOW_MS),)},
            "; deferred by branch audit, not yet published",
        ),
    ],
)
def test_failing_check_names_the_branch_or_the_column(facts: Mapping[str, object], hindrance: str) -> None:
    measured = replace(measured_of({"p=a": SICK}), **facts)  # type: ignore[arg-type]
    histories = {o: TableHistory() for o in DATA_OPERATIONS}
    decision = combine_decisions(decisions_of(measured, policy_of(), histories, NOW_MS))
    with dg.DagsterInstance.ephemeral() as instance:
        checked = CheckedTable(measured, policy_of(), NOW_MS, deferral(decision))
        evaluations = partition_evaluations(instance, NAMES, checked, list(measured.partitions))
    [failing] = [e for e in evaluations if not e.passed]
    assert failing.description is not None
    assert failing.description.endswith(hindrance)
    assert not any("branch audit" in (e.description or "") for e in evaluations if e.passed)
