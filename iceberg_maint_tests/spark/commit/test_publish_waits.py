"""Branches and staged changes of real tables stay publishable while they are pending, whatever maintenance is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from iceberg_maint.core.model.ids import Operation
from iceberg_maint.core.model.other_writers import pending_publishes as pending_of
from iceberg_maint.core.model.reasons import Reason
from iceberg_maint.core.outcomes.outcome import OutcomeStatus
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.core.policy.runs import PublishMode, WriteAuditPublishPolicy
from iceberg_maint.engines.spark.commit.gate import pending_publishes
from iceberg_maint.engines.spark.jvm.java_errors import one_line
from iceberg_maint_tests.support.spark.housekeeping import KEEP_ONE, Keeper
from iceberg_maint_tests.support.spark.workshop import Workshop, workshop_of

pytestmark = [pytest.mark.spark, pytest.mark.drawn(1)]
REWRITE, REGROUP = Operation.REWRITE_DATA_FILES, Operation.REWRITE_MANIFESTS
EXPIRE = Operation.EXPIRE_SNAPSHOTS
IGNORE = replace(KEEP_ONE, write_audit_publish=WriteAuditPublishPolicy(PublishMode.IGNORE))

Stage = Callable[[Workshop, Any], Callable[[Any], None]]
"""Writes something to be published to the table, and returns what publishes it."""


@pytest.fixture(scope="module")
def workshop(spark: SparkSession, lake_dir: Path) -> Workshop:
    return workshop_of(spark, lake_dir)


def small_files(workshop: Workshop) -> tuple[str, Any]:
    """A table of six small files, which a rewrite makes one of."""
    name = workshop.new_name("publish")
    table = workshop.writers.create(name)
    for number in range(6):
        workshop.writers.append(table, [{"id": number, "v": "x"}])
    return name, table


def branch(workshop: Workshop, table: Any) -> Callable[[Any], None]:
    table.manageSnapshots().createBranch("audit").commit()
    file = workshop.writers.data(table, [{"id": 9, "v": "new"}])
    table.newAppend().appendFile(file).toBranch("audit").commit()
    return lambda fresh: fresh.manageSnapshots().fastForwardBranch("main", "audit").commit()


def overwrite(workshop: Workshop, table: Any) -> Callable[[Any], None]:
    [task, *_] = workshop.writers.tasks(table)
    file = workshop.writers.data(table, [{"id": 9, "v": "new"}])
    staged = table.newOverwrite().deleteFile(task.file()).addFile(file).set("wap.id", "w1").stageOnly()
    return picking(table, staged)


def dynamic_overwrite(workshop: Workshop, table: Any) -> Callable[[Any], None]:
    file = workshop.writers.data(table, [{"id": 9, "v": "new"}])
    return picking(table, table.newReplacePartitions().addFile(file).set("wap.id", "w1").stageOnly())


def append(workshop: Workshop, table: Any) -> Callable[[Any], None]:
    file = workshop.writers.data(table, [{"id": 9, "v": "new"}])
    return picking(table, table.newAppend().appendFile(file).set("wap.id", "w1").stageOnly())


def picking(table: Any, staging: Any) -> Callable[[Any], None]:
    staging.commit()
    table.refresh()
    snapshots = list(table.snapshots())
    return lambda fresh: fresh.manageSnapshots().cherrypick(snapshots[-1].snapshotId()).commit()


@pytest.mark.parametrize(
    ("stage", "says"),
    [
        (branch, "Cannot fast-forward: main is not an ancestor of audit"),
        (overwrite, "not append, dynamic overwrite, or fast-forward"),
        (dynamic_overwrite, "Cannot cherry-pick replace partitions with changed partition"),
    ],
    ids=["branch", "overwrite", "dynamic-overwrite"],
)
def test_what_is_pending_is_published_after_the_run_that_waited(
    workshop: Workshop, stage: Stage, says: str
) -> None:
    name, table = small_files(workshop)
    publish = stage(workshop, table)
    keeper = Keeper(workshop)
    for operation in (REWRITE, REGROUP):
        outcome = keeper.run(name, operation, force=True)
        assert (outcome.outcome, outcome.reason) == (OutcomeStatus.NO_OP, Reason.PENDING_PUBLISH)
    expected = pending_of(keeper.state(name))
    assert pending_publishes(workshop.bridge, workshop.writers.load(name).operations().current()) == expected
    publish(workshop.writers.load(name))
    assert (9, "new") in workshop.rows(name)
    assert pending_of(keeper.state(name)) == ()

    # What the run waited for is true: without the wait the publish fails.
    other, other_table = small_files(workshop)
    publish = stage(workshop, other_table)
    assert Keeper(workshop, policy=IGNORE).run(other, REWRITE).outcome is OutcomeStatus.IMPROVED
    with pytest.raises(Exception) as refused:
        publish(workshop.writers.load(other))
    assert says in one_line(refused.value)


@pytest.mark.variant
def test_staged_append_is_published_after_a_rewrite(workshop: Workshop) -> None:
    name, table = small_files(workshop)
    publish = append(workshop, table)
    assert Keeper(workshop).run(name, REWRITE).outcome is OutcomeStatus.IMPROVED
    publish(workshop.writers.load(name))
    assert (9, "new") in workshop.rows(name)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("operation", [REWRITE, REGROUP], ids=["rewrite", "regroup"])
def test_branch_that_appears_after_the_plan_keeps_the_commit_from_main(
    workshop: Workshop, operation: Operation
) -> None:
    name, _ = small_files(workshop)
    keeper = Keeper(workshop)
    published: list[Callable[[Any], None]] = []

    def audit(_batch: Batch) -> None:
        keeper.before_commit = lambda _batch: None
        published.append(branch(workshop, workshop.writers.load(name)))

    keeper.before_commit = audit
    head = keeper.state(name).snapshot
    outcome = keeper.run(name, operation, force=True)
    assert [(b.reason, b.message) for b in outcome.batches] == [
        (Reason.STALE, "pending_publish: branch audit builds on main's head and is to be published")
    ]
    assert keeper.state(name).snapshot == head
    [publish] = published
    publish(workshop.writers.load(name))
    assert (9, "new") in workshop.rows(name)


def test_branch_of_many_commits_is_published_after_an_expiry(workshop: Workshop) -> None:
    """Without the hold `fast_forward` says "main is not an ancestor of audit"."""
    name, table = small_files(workshop)
    publish = branch(workshop, table)
    for number in (10, 11):
        file = workshop.writers.data(table, [{"id": number, "v": "new"}])
        table.newAppend().appendFile(file).toBranch("audit").commit()
    keeper = Keeper(workshop)
    outcome = keeper.run(name, EXPIRE, days=1)
    assert (outcome.outcome, outcome.batches[0].counts["expired_snapshots"]) == (OutcomeStatus.IMPROVED, 5)
    assert keeper.run(name, REWRITE, days=1).reason is Reason.PENDING_PUBLISH
    publish(workshop.writers.load(name))
    assert {(9, "new"), (10, "new"), (11, "new")} <= set(workshop.rows(name))


def first_of(keeper: Keeper, name: str) -> int:
    """The first snapshot that main lacks."""
    [pending] = pending_of(keeper.state(name))
    chain = [s.snapshot_id for s in keeper.state(name).snapshots if s.timestamp_ms >= pending.since_ms]
    return chain[0]


def test_branch_that_can_be_published_again_after_the_plan_of_an_expiry_stops_it(workshop: Workshop) -> None:
    name, table = small_files(workshop)
    head = table.currentSnapshot().snapshotId()
    table.manageSnapshots().createTag("kept", head).commit()
    branch(workshop, table)
    for to in ("audit", "audit", "main"):
        file = workshop.writers.data(table, [{"id": 10, "v": "new"}])
        table.newAppend().appendFile(file).toBranch(to).commit()
    keeper = Keeper(workshop)

    def roll_back(_batch: Batch) -> None:
        keeper.before_commit = lambda _batch: None
        workshop.writers.load(name).manageSnapshots().setCurrentSnapshot(head).commit()

    keeper.before_commit = roll_back
    outcome = keeper.run(name, EXPIRE, days=1)
    first, planned_again = outcome.batches
    assert (first.reason, first.message) == (
        Reason.STALE,
        f"retention: snapshot {first_of(keeper, name)} may no longer expire (2 in all)",
    )
    assert (planned_again.outcome, planned_again.counts["expired_snapshots"]) == (OutcomeStatus.IMPROVED, 6)
    workshop.writers.load(name).manageSnapshots().fastForwardBranch("main", "audit").commit()
