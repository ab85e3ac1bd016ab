"""Every fault is red with its exact rows, and no honest commit is. `make qualify SUITE=attest` draws more commits."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.commits.roll_back import plan_roll_back
from iceberg_maint_tests.qualification.attest.faults import FAULTS, FIXED, Fault, fixed
from iceberg_maint_tests.qualification.attest.honest import HonestRun
from iceberg_maint_tests.qualification.attest.world import METADATA, AttestWorld, Verdict

pytestmark = pytest.mark.spark

COMMITS = int(os.environ.get("ICEBERG_MAINT_ATTEST_COMMITS", "5"))
SEED = int(os.environ.get("ICEBERG_MAINT_ATTEST_SEED", "1"))


@pytest.fixture(scope="module")
def world(spark: SparkSession, lake_dir: Path) -> AttestWorld:
    return AttestWorld(spark, lake_dir)


@pytest.mark.drawn(8)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_has_its_verdict_with_its_exact_rows(world: AttestWorld, fault: Fault) -> None:
    found = world.newest(fault.make(world))
    assert (found.status, found.lost, found.gained) == (fault.status, fault.lost, fault.gained), found.detail
    assert fault.detail in found.detail


@pytest.mark.parametrize("script", FIXED)
def test_commit_of_a_fault_that_is_fixed_is_attested(world: AttestWorld, script: str) -> None:
    assert world.newest(fixed(world, script)).status == "ATTESTED"


def test_metadata_alone_passes_no_fault_of_counts_and_names_the_hazard_of_others(world: AttestWorld) -> None:
    by_name = {fault.name: fault for fault in FAULTS}
    found = {
        name: world.newest(by_name[name].make(world), METADATA).status
        for name in (
            "file dropped",
            "rewrite_drops_newer_equality_delete",
            "equal counts of other rows",
            "equal counts and bounds of other rows",
        )
    }
    assert list(found.values()) == ["RED", "UNPROVABLE", "UNPROVABLE", "CONSISTENT"]


def test_roll_back_that_is_planned_brings_the_rows_back_and_keeps_later_appends(world: AttestWorld) -> None:
    name = FAULTS[9].make(world)
    world.spark.sql(f"INSERT INTO {name} VALUES (9, 'later')")
    attested = world.attest(name)
    (red,) = attested.verdicts
    assert red.snapshot_id is not None
    plan = plan_roll_back(attested.state, red.snapshot_id)
    assert plan is not None
    for step in plan.steps:
        if step.sql:
            world.spark.sql(step.sql)
    assert [i for i, _ in world.writers.rows(name)] == [1, 2, 3, 9]
    again = world.attest(name)
    assert (again.verdicts, again.attestation and again.attestation.open) == ((), ())


@pytest.mark.timeout(0)
def test_honest_commits_raise_no_alarm(world: AttestWorld) -> None:
    run = HonestRun(world, SEED)
    run.run(COMMITS)
    sys.stdout.write(
        f"\n{run.judged.total()} honest commits, {len(run.alarms)} false alarms, {run.by_metadata} proved by metadata: "
        f"{dict(run.judged)}\n"
    )
    assert run.alarms == []


def test_verdict_of_a_commit_is_stored_once(world: AttestWorld) -> None:
    name = FAULTS[9].make(world)
    assert Verdict.of(world.attest(name).verdicts[0]).status == "RED"
    again = world.attest(name)
    assert again.verdicts == ()
    assert again.attestation is not None
    assert [v.status for v in again.attestation.open] == ["RED"]
