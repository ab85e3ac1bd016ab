"""The loop measures by the source that policy and size choose, and gets the same health from both."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from iceberg_maint.core.model.partition_key import PartitionField, PartitionSpec
from iceberg_maint.core.model.table_state import Manifest
from iceberg_maint.core.policy.housekeeping import HealthPolicy, HealthSource
from iceberg_maint.errors import RefusedError
from iceberg_maint.loop.assess import assess
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.read_table import measurer_of
from iceberg_maint_tests.support.context import changed
from iceberg_maint_tests.support.fakes.catalog import FakeTable
from iceberg_maint_tests.support.loop.world import POLICY, TABLE, Process, World

MIB = 1024**2
FILES = 5_000
"""Their estimate is 2,000,000 bytes."""


def world(health: HealthPolicy) -> tuple[World, Context]:
    made = World("a", replace(POLICY, health=health))
    manifests = (Manifest("m", 1, False, 0, 1, 1, 1, FILES, 0, 0, None, None),)
    made.now = FakeTable(replace(made.now.state, manifests=manifests), made.now.live_files)
    made.catalog.put(made.now)
    return made, made.context(Process())


def test_table_that_fits_is_measured_from_manifests_and_no_engine_starts() -> None:
    made, context = world(HealthPolicy(memory=2 * MIB))
    assess(TABLE, context)
    assert made.measured_by_engine == []


def test_table_that_exceeds_the_memory_is_measured_by_the_engine_with_the_same_health(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made, context = world(HealthPolicy(memory=MIB))
    with caplog.at_level(logging.WARNING):
        by_engine = assess(TABLE, context)
    assert caplog.messages == [
        (
            "lake.db.t: Spark starts, because measuring it takes up to 1 MiB by its manifest list, and health.memory is 1 "
            "MiB."
        )
    ]
    assert made.measured_by_engine == [TABLE]
    made.policy = replace(POLICY, health=HealthPolicy(HealthSource.MANIFESTS, MIB))
    assert assess(TABLE, context).measured == by_engine.measured
    assert made.measured_by_engine == [TABLE]
    assert made.ledger.health.get(TABLE) == by_engine.measured


def test_assess_of_a_table_that_exceeds_the_memory_is_refused_with_the_sizes() -> None:
    made, context = world(HealthPolicy(memory=MIB))
    with pytest.raises(RefusedError) as refused:
        assess(TABLE, changed(context, measures=False))
    assert str(refused.value) == (
        "ICM-177 lake.db.t: measuring it takes up to 1 MiB by its manifest list, and health.memory is 1 MiB, and this "
        "command starts no Spark. It was not measured. Fix: observe the table, or set health.source to manifests, or "
        "raise health.memory."
    )
    assert (made.measured_by_engine, made.ledger.health.get(TABLE)) == ([], None)


def test_table_that_spark_confuses_is_measured_from_manifests_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made, context = world(HealthPolicy(memory=MIB))
    by_float = PartitionSpec(0, (PartitionField(1000, 1, "f", "identity", "float"),))
    state = replace(made.now.state, specs={0: by_float})
    with caplog.at_level(logging.WARNING):
        assert measurer_of(state, made.policy, context) is made.catalog
    assert "ICM-177 lake.db.t" in caplog.text
    assert "partition field f" in caplog.text
