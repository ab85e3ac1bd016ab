"""Equality deletes by UUIDs, some of which Iceberg 1.12 plans no scan with (apache/iceberg#14216)."""

from __future__ import annotations

import pytest

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.outcomes.verification import MaintenanceCommit, VerificationStatus, find_commit
from iceberg_maint.demo.duckdb_reader import DuckDBReader, scan
from iceberg_maint.engines.spark.verify import SparkVerifier
from iceberg_maint_tests.spark.deletes.equality.conftest import Way
from iceberg_maint_tests.support.spark.equality.reference import Twin

pytestmark = [pytest.mark.spark, pytest.mark.drawn(1)]

LOW = "00000000-0000-0000-0000-000000000001"
HIGH = "f79c3e09-677c-4bbd-a479-3f349cb785e7"
"""After LOW as bytes, and before it as Java orders them."""


def tags_by_duckdb(twin: Twin) -> list[int]:
    """What a reader sees that has no code of Iceberg's."""
    location = str(twin.table.operations().current().metadataFileLocation())
    rows = DuckDBReader()._db.execute(f"SELECT tag FROM {scan(location)} ORDER BY tag").fetchall()
    return [tag for (tag,) in rows]


def test_rows_deleted_by_uuid_stay_deleted_where_icebergs_scan_leaves_the_delete_out(way: Way) -> None:
    twin = way.create("tag int, p int", partitioned_by="p")
    twin.add_column("u", "uuid")
    files = ({"p": p, "u": u} for p in (1, 2) for u in (LOW, HIGH))
    twin.append(*files)
    twin.delete({"u": LOW}, spec_id=0, partition=(1,))
    twin.append({"p": 1, "u": LOW}, {"p": 1, "u": HIGH})
    assert twin.tags() == [1, 2, 3, 4, 5, 6]
    assert twin.applied_equality_deletes() == set()
    outcomes = way.maintainer.maintain(twin, way.policy)
    assert [o.outcome for o in outcomes].count(OutcomeStatus.IMPROVED) == 1
    assert twin.table.currentSnapshot().summary()["total-equality-deletes"] == "0"
    assert (tags_by_duckdb(twin), twin.tags()) == ([2, 3, 4, 5, 6], [2, 3, 4, 5, 6])
    state = way.maintainer.catalog.pin(TableId.parse(twin.name))
    assert state.snapshot is not None
    commit = find_commit(state, state.snapshot.snapshot_id)
    assert isinstance(commit, MaintenanceCommit)
    verified = SparkVerifier(lambda: way.maintainer.spark).verify(commit)
    assert verified.status is VerificationStatus.ATTESTED, verified


@pytest.mark.variant
def test_rows_deleted_by_uuid_everywhere_stay_deleted_once_the_spec_has_evolved(way: Way) -> None:
    twin = way.create("tag int, p int")
    twin.add_column("u", "uuid")
    twin.append({"p": 1, "u": LOW}, {"p": 1, "u": HIGH})
    spec_id = twin.partition_by("p")
    twin.append({"p": 2, "u": LOW}, {"p": 2, "u": HIGH}, spec_id=spec_id)
    twin.delete({"u": LOW}, spec_id=0)
    assert (tags_by_duckdb(twin), twin.tags()) == ([2, 4], [1, 2, 3, 4])
    way.maintainer.maintain(twin, way.policy)
    assert (tags_by_duckdb(twin), twin.tags()) == ([2, 4], [2, 4])
