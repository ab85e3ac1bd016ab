"""Which commit is verified, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.model.codec import dumps
from iceberg_maint.core.model.table_state import (
    BATCH_PROPERTY,
    PROOF_PROPERTY,
    TOKEN_PROPERTY,
    Snapshot,
    TableState,
)
from iceberg_maint.core.outcomes.verification import (
    Compared,
    Evidence,
    Fingerprint,
    MaintenanceCommit,
    Proof,
    Side,
    StoredProof,
    Verification,
    VerificationStatus,
    find_commit,
    judge_commit,
)
from iceberg_maint_tests.support.core.values import data, table_of

ROWS = Fingerprint(3, ((1, 2), (3, 4)))
OTHERS = Fingerprint(3, ((1, 2), (3, 5)))
COMMIT = MaintenanceCommit("lake.db.t", "u", 3, 2, "b", ROWS)


def snapshot(snapshot_id: int, parent_id: int | None, **summary: str) -> Snapshot:
    return Snapshot(snapshot_id, parent_id, snapshot_id, 0, "replace", summary, "")


def ours(snapshot_id: int, parent_id: int | None, fingerprint: str | None = ROWS.text()) -> Snapshot:
    proof = Proof("full", equal=True, input_records=3, output_records=3, removed_records=0)
    summary = {
        TOKEN_PROPERTY: "t",
        BATCH_PROPERTY: f"b{snapshot_id}",
        PROOF_PROPERTY: dumps(replace(proof, fingerprint=fingerprint)),
    }
    return snapshot(snapshot_id, parent_id, **summary)


def state_of(*snapshots: Snapshot, head: int = -1) -> TableState:
    base = table_of([data("a", 1)]).state
    return replace(base, snapshot=snapshots[head] if snapshots else None, snapshots=snapshots)


def status_of(state: TableState, snapshot_id: int | None = None) -> VerificationStatus:
    found = find_commit(state, snapshot_id)
    assert isinstance(found, Verification)
    return found.status


def test_find_without_a_snapshot_is_the_newest_of_ours() -> None:
    state = state_of(snapshot(1, None), ours(2, 1), ours(3, 2), snapshot(4, 3))
    assert find_commit(state, None) == MaintenanceCommit("lake.db.t", state.uuid, 3, 2, "b3", ROWS)


def test_find_takes_the_snapshot_asked_for_also_off_main() -> None:
    state = state_of(snapshot(1, None), ours(2, 1), ours(3, 1), head=1)
    found = find_commit(state, 3)
    assert isinstance(found, MaintenanceCommit)
    assert (found.snapshot_id, found.parent_id) == (3, 1)


def test_find_in_a_table_we_never_touched_is_not_ours() -> None:
    assert status_of(state_of(snapshot(1, None))) is VerificationStatus.NOT_OURS
    assert status_of(state_of()) is VerificationStatus.NOT_OURS


def test_find_snapshot_of_another_writer_is_not_ours() -> None:
    assert status_of(state_of(ours(1, None), snapshot(2, 1)), 2) is VerificationStatus.NOT_OURS


def test_find_snapshot_without_a_parent_says_so() -> None:
    found = find_commit(state_of(ours(2, None)), None)
    assert isinstance(found, Verification)
    assert (found.status, found.detail) == (VerificationStatus.UNPROVABLE, "snapshot 2 names no parent")


def test_find_snapshot_that_is_gone_is_unprovable() -> None:
    assert status_of(state_of(snapshot(1, None), ours(2, 1)), 7) is VerificationStatus.UNPROVABLE


@pytest.mark.parametrize("parent_id", [1, None])
def test_find_without_the_parent_is_unprovable(parent_id: int | None) -> None:
    assert status_of(state_of(ours(2, parent_id))) is VerificationStatus.UNPROVABLE


@pytest.mark.parametrize("text", ["", "{}", "[]", "x", '{"fingerprint": 1}', "null"])
def test_find_with_a_proof_that_nobody_can_read_has_none_stored(text: str) -> None:
    spoiled = replace(ours(2, 1), summary={TOKEN_PROPERTY: "t", PROOF_PROPERTY: text})
    found = find_commit(state_of(snapshot(1, None), spoiled), None)
    assert isinstance(found, MaintenanceCommit)
    assert found.stored is None


@pytest.mark.parametrize("fingerprint", [None, "", "a:b", "xxh64x2-1:3:1.2"])
def test_find_with_a_footer_proof_or_a_broken_fingerprint(fingerprint: str | None) -> None:
    found = find_commit(state_of(snapshot(1, None), ours(2, 1, fingerprint)), None)
    assert isinstance(found, MaintenanceCommit)
    assert found.stored is None or found.stored.text() == fingerprint


def judged(
    before: Fingerprint,
    after: Fingerprint,
    incomparable: str | None = None,
    stored: Fingerprint | None = ROWS,
) -> tuple[VerificationStatus, StoredProof | None]:
    seen = Evidence(Side(2, 0, before), Side(1, 0, after), incomparable)
    found = judge_commit(replace(COMMIT, stored=stored), seen)
    return found.status, found.stored


V, S = VerificationStatus, StoredProof


def test_judge_groups_the_digits_of_the_rows() -> None:
    many = replace(ROWS, rows=299_814)
    verdict = judge_commit(replace(COMMIT, stored=many), Evidence(Side(2, 0, many), Side(1, 0, many), None))
    assert verdict.detail.startswith("the same 299,814 rows before and after; ")


def test_judge_same_rows_as_stored_is_proved() -> None:
    assert judged(ROWS, ROWS) == (V.PROVED, S.EQUAL)


def test_judge_other_rows_is_different_whatever_is_stored() -> None:
    assert judged(ROWS, OTHERS) == (V.DIFFERENT, S.DIFFERENT)
    assert judged(OTHERS, ROWS) == (V.DIFFERENT, S.EQUAL)
    assert judged(OTHERS, ROWS, "newer deletes") == (V.DIFFERENT, S.NOT_COMPARABLE)


def test_judge_same_rows_that_are_not_the_stored_ones_is_different() -> None:
    assert judged(OTHERS, OTHERS) == (V.DIFFERENT, S.DIFFERENT)


def test_judge_same_rows_without_a_word_on_the_stored_ones_is_proved() -> None:
    assert judged(OTHERS, OTHERS, "newer deletes") == (V.PROVED, S.NOT_COMPARABLE)
    assert judged(ROWS, ROWS, stored=None) == (V.PROVED, S.NOT_COMPARABLE)
    assert judged(ROWS, ROWS, stored=replace(ROWS, algorithm="old")) == (V.PROVED, S.NOT_COMPARABLE)


def test_judge_returns_both_fingerprints_if_they_differ() -> None:
    found = judge_commit(COMMIT, Evidence(Side(2, 0, OTHERS), Side(1, 0, ROWS)))
    assert OTHERS.text() in found.detail
    assert ROWS.text() in found.detail


def test_judge_positions_holds_what_was_added_against_what_was_stored() -> None:
    """Of a conversion the positions written are proved, those deleted in all are compared."""
    sides = Side(2, 1, ROWS), Side(2, 2, ROWS)
    seen = Evidence(*sides, compared=Compared.DELETED_POSITIONS, added=OTHERS)
    right = judge_commit(replace(COMMIT, stored=OTHERS), seen)
    assert (right.status, right.stored, right.compared) == (V.PROVED, S.EQUAL, Compared.DELETED_POSITIONS)
    assert right.detail.startswith("the same 3 deleted positions before and after")
    assert judge_commit(COMMIT, seen).status is V.DIFFERENT


def test_judge_names_the_first_file_that_differs() -> None:
    found = judge_commit(COMMIT, Evidence(Side(2, 0, OTHERS), Side(1, 0, ROWS), where="a.parquet"))
    assert "first in a.parquet" in found.detail


def test_judge_of_sides_without_a_file_says_that_nothing_is_read_differently() -> None:
    none = Side(0, 0, Fingerprint(0, ((0, 0), (0, 0))))
    found = judge_commit(replace(COMMIT, stored=none.fingerprint), Evidence(none, none))
    assert (found.status, found.stored) == (V.PROVED, S.EQUAL)
    assert "the same data files with the same deletes" in found.detail
