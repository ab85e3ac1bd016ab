"""Released files under the whole loop: stored before the commit, removed after it, and never by a doubtful expiry."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.model.ids import WHOLE_TABLE, Operation
from iceberg_maint.core.outcomes.outcome import CommitResult, CommitStatus, OutcomeStatus
from iceberg_maint.core.planning.plan import Batch
from iceberg_maint.errors import FenceLostError, RefusedError
from iceberg_maint.loop.attempts.housekeeping_attempt import takes_released
from iceberg_maint.ports.engine import CommitContext, Written
from iceberg_maint.ports.storage import ReleasedWork
from iceberg_maint_tests.support.fakes.catalog import FakeCatalog
from iceberg_maint_tests.support.fakes.orphan_scan import FakeOrphanFiles
from iceberg_maint_tests.support.loop.housekeeping import EXPIRE, HousekeepingEngine, HousekeepingWorld
from iceberg_maint_tests.support.loop.world import Killed, Process

CLEAN = Operation.REMOVE_ORPHAN_FILES
WORK = ReleasedWork(7, 700, 5, 500, 9, 900, 1)
COUNTS = {
    "released_files": 7,
    "released_bytes": 700,
    "released_deleted_files": 5,
    "released_deleted_bytes": 500,
    "released_retained_files": 9,
    "released_retained_bytes": 900,
}


@pytest.fixture
def world() -> HousekeepingWorld:
    world = HousekeepingWorld()
    world.orphans = FakeOrphanFiles(released=WORK)
    return world


def test_release_is_stored_before_the_commit_with_the_snapshots_that_go(world: HousekeepingWorld) -> None:
    before = world.ids()
    with pytest.raises(Killed):
        world.run(Process(dies="before:swap"), operations=(EXPIRE,))
    [release] = world.orphans.releases
    assert [s.snapshot_id for s in release.snapshots] == before[:-1] == world.ids()[:-1]


@pytest.mark.parametrize(("log", "releases"), [([], 0), ([{"metadata-file": "m1", "timestamp-ms": 1}], 1)])
def test_expiry_whose_commit_no_metadata_log_will_show_releases_nothing(
    world: HousekeepingWorld, monkeypatch: pytest.MonkeyPatch, log: list[Any], releases: int
) -> None:
    """A REST catalog may remove a new ref with the snapshots. Without a log nothing shows it."""
    document = FakeCatalog.metadata_document
    monkeypatch.setattr(FakeCatalog, "checks_commit_base", False)
    monkeypatch.setattr(FakeCatalog, "metadata_document", lambda *of: {**document(*of), "metadata-log": log})
    with pytest.raises(Killed):
        world.run(Process(dies="before:swap"), operations=(EXPIRE,))
    assert len(world.orphans.releases) == releases


def test_expiry_counts_what_it_released_held_and_deleted(world: HousekeepingWorld) -> None:
    outcome = world.run(operations=(EXPIRE,))
    assert dict(outcome.batches[0].counts) == {"expired_snapshots": 4, "expired_refs": 1, **COUNTS}
    [record] = world.ledger.records.newest(str(world.now.state.table), 1)
    assert dict(record.outcome.batches[0].counts) == dict(outcome.batches[0].counts)
    assert (outcome.batches[0].message, world.orphans.releases) == ("", [])


def test_files_of_an_expiry_that_cannot_be_removed_leave_the_expiry_improved(
    world: HousekeepingWorld,
) -> None:
    world.orphans.released = replace(WORK, stopped=RefusedError("ICM-111", "two owners.", "one."))
    outcome = world.run(operations=(EXPIRE,))
    assert outcome.outcome is OutcomeStatus.IMPROVED
    assert (
        "the files that the expiry released wait for the next one or an orphan scan: ICM-111 two owners."
        in (outcome.batches[0].message)
    )
    assert outcome.batches[0].counts["released_files"] == 7


def test_expiry_without_storage_stands_and_shows_why_its_files_wait(
    world: HousekeepingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> Any:
        raise OSError("the store is away")

    monkeypatch.setattr(FakeOrphanFiles, "record_release", away)
    monkeypatch.setattr(FakeOrphanFiles, "remove_released", away)
    outcome = world.run(operations=(EXPIRE,))
    assert (outcome.outcome, len(world.ids())) == (OutcomeStatus.IMPROVED, 1)
    assert "OSError: the store is away" in outcome.batches[0].message


def test_lease_lost_while_released_files_move_ends_the_run(
    world: HousekeepingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object, **__: object) -> Any:
        raise FenceLostError("another run holds the table's lease.")

    monkeypatch.setattr(FakeOrphanFiles, "remove_released", lost)
    world.run(operations=(EXPIRE,))
    assert world.left_open(EXPIRE)[0] == 1


def test_rejected_expiry_removes_no_file(world: HousekeepingWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def reject(_self: object, _batch: Batch, _written: Written, _context: CommitContext) -> CommitResult:
        return CommitResult(CommitStatus.REJECTED, message="no")

    monkeypatch.setattr(HousekeepingEngine, "commit", reject)
    monkeypatch.setattr(
        FakeOrphanFiles, "remove_released", lambda *_, **__: pytest.fail("files were removed")
    )
    outcome = world.run(operations=(EXPIRE,))
    assert outcome.outcome is OutcomeStatus.FAILED


def test_expiry_that_lost_a_ref_releases_no_file(
    world: HousekeepingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = HousekeepingEngine.commit

    def commit(self: Any, batch: Batch, written: Written, context: CommitContext) -> CommitResult:
        return replace(real(self, batch, written, context), lost=("tag audited on snapshot 1",))

    monkeypatch.setattr(HousekeepingEngine, "commit", commit)
    monkeypatch.setattr(
        FakeOrphanFiles, "remove_released", lambda *_, **__: pytest.fail("files were removed")
    )
    world.run(operations=(EXPIRE,))
    assert len(world.orphans.releases) == 1
    world.run(operations=(CLEAN,), force=True)
    assert world.orphans.took_released == [False]


def test_unsettled_expiry_keeps_its_files_from_an_orphan_pass(world: HousekeepingWorld) -> None:
    with pytest.raises(Killed):
        world.run(Process(dies="before:swap"), operations=(EXPIRE,))
    world.expire_leases()
    world.run(operations=(CLEAN,), force=True)
    assert world.orphans.took_released == [False]


def test_settled_expiry_gives_its_files_to_the_next_orphan_pass(world: HousekeepingWorld) -> None:
    with pytest.raises(Killed):
        world.run(Process(dies="after:swap"), operations=(EXPIRE,))
    world.expire_leases()
    world.run(operations=(CLEAN,), force=True)
    assert world.orphans.took_released == [True]


def test_quarantined_expiry_keeps_the_files_of_all_expiries(world: HousekeepingWorld) -> None:
    state, context = world.now.state, world.context(Process())
    assert takes_released(state, context)
    held = PartitionHistory(quarantined=True, reason="ICM-130")
    world.ledger.health.set_partition_history(state.uuid, EXPIRE, {WHOLE_TABLE: held})
    assert not takes_released(state, context)


def test_expiry_stores_no_release_where_orphan_files_are_not_removed(
    world: HousekeepingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.policy = replace(
        world.policy, remove_orphan_files=replace(world.policy.remove_orphan_files, enabled=False)
    )
    for name in ("record_release", "remove_released"):
        monkeypatch.setattr(FakeOrphanFiles, name, lambda *_, **__: pytest.fail("storage was used"))
    outcome = world.run(operations=(EXPIRE,))
    assert dict(outcome.batches[0].counts) == {"expired_snapshots": 4, "expired_refs": 1}
