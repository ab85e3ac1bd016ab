"""Attestations of one table: limits, damage, and what a second look stores."""

from __future__ import annotations

import pytest

from iceberg_maint.core.model.table_state import Snapshot
from iceberg_maint.core.outcomes.verification import Evidence, Fingerprint, Side
from iceberg_maint.core.policy.housekeeping import AttestLevel, AttestPolicy
from iceberg_maint.errors import RefusedError
from iceberg_maint.loop.attest import Attested, Extent, attest_by_policy, attest_snapshot, attest_table
from iceberg_maint.loop.context import Context
from iceberg_maint_tests.support.context import changed, spark_access
from iceberg_maint_tests.support.core.values import data
from iceberg_maint_tests.support.loop.verifier import SetVerifier
from iceberg_maint_tests.support.loop.world import Process, World

ROWS = Fingerprint(3, ((1, 2), (3, 4)))
FILES = Extent(files=True, max_bytes=None)
DAMAGED = RefusedError("ICM-101", "file a.parquet has 1 byte; its manifest states 9.", "restore it.")
TOO_LARGE = RefusedError("ICM-124", "the keys of d.parquet do not fit.", "set more memory.")


EQUAL = Evidence(Side(1, 0, ROWS), Side(1, 0, ROWS))


def merge(world: World, key: str, *, lost: int = 0) -> Snapshot:
    """A commit of another maintainer, which merges the files of a partition."""
    files = [f for f in world.now.live_files if f.partition == key]
    rows = sum(f.record_count for f in files) - lost
    merged = data(f"{key}/merged", 60, partition=key, seq=world.now.state.last_sequence_number, records=rows)
    return world.commit([f.path for f in files], [merged], operation="replace")


def context_of(world: World, verifier: SetVerifier) -> Context:
    return changed(world.context(Process()), spark=spark_access(verifier=lambda: verifier))


def statuses(attested: Attested) -> list[str]:
    return [v.status for v in attested.verdicts]


def test_attest_that_is_off_judges_nothing() -> None:
    world = World("a")
    merge(world, "p=a")
    verifier = SetVerifier(EQUAL)
    off = AttestPolicy(level=AttestLevel.OFF)
    done = attest_by_policy(world.now.state, off, context_of(world, verifier), files=True)
    assert (done.verdicts, done.attestation, verifier.asked) == ((), None, [])


def test_commit_after_the_limit_was_reached_waits_unread() -> None:
    world = World("ab")
    snapshots = [merge(world, key).snapshot_id for key in ("p=a", "p=b")]
    verifier = SetVerifier(EQUAL)
    done = attest_table(world.now.state, context_of(world, verifier), Extent(files=True, max_bytes=1))
    assert (statuses(done), verifier.asked) == (["UNPROVABLE"], [])
    assert done.attestation is not None
    assert (done.attestation.snapshot_id, done.attestation.pending) == (snapshots[0], 1)


def test_commit_that_metadata_refutes_is_red_above_the_limit() -> None:
    world = World("a")
    merge(world, "p=a", lost=1)
    verifier = SetVerifier(EQUAL)
    done = attest_table(world.now.state, context_of(world, verifier), Extent(files=True, max_bytes=20))
    assert (statuses(done), verifier.asked) == (["RED"], [])


@pytest.mark.parametrize("error", [DAMAGED, TOO_LARGE])
def test_commit_that_metadata_refutes_is_red_with_files_that_cannot_be_compared(error: RefusedError) -> None:
    world = World("a")
    merge(world, "p=a", lost=1)
    done = attest_table(world.now.state, context_of(world, SetVerifier(EQUAL, error)), FILES)
    assert statuses(done) == ["RED"]
    assert done.verdicts[0].detail.endswith(f"; its files cannot be compared: {error}")


@pytest.mark.parametrize("error", [DAMAGED, TOO_LARGE])
def test_commit_whose_files_cannot_be_compared_is_unprovable_and_named(error: RefusedError) -> None:
    world = World("a")
    merge(world, "p=a")
    done = attest_table(world.now.state, context_of(world, SetVerifier(EQUAL, error)), FILES)
    assert [(v.status, v.detail) for v in done.verdicts] == [("UNPROVABLE", str(error))]


def test_error_of_every_proof_ends_the_attestation() -> None:
    world = World("a")
    merge(world, "p=a")
    error = RefusedError("ICM-132", "the cluster does not answer.", "start it.")
    with pytest.raises(RefusedError, match="ICM-132"):
        attest_table(world.now.state, context_of(world, SetVerifier(EQUAL, error)), FILES)
    assert world.ledger.attestations.get(world.now.state.uuid) is None


@pytest.mark.parametrize("error", [DAMAGED, TOO_LARGE])
def test_second_look_at_a_commit_raises_what_its_files_raise(error: RefusedError) -> None:
    world = World("a")
    snapshot = merge(world, "p=a")
    with pytest.raises(RefusedError, match=error.code):
        attest_snapshot(
            world.now.state, snapshot.snapshot_id, context_of(world, SetVerifier(EQUAL, error)), FILES
        )
    assert world.ledger.attestations.get(world.now.state.uuid) is None
