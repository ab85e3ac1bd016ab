"""Which commit is verified, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.commits.attestation import Judgement, MetadataVerdict
from iceberg_maint.core.commits.change import Rule, Violation
from iceberg_maint.core.commits.verdict import judge_by_metadata, with_metadata
from iceberg_maint.core.model.codec import dumps
from iceberg_maint.core.model.table_state import (
    BATCH_PROPERTY,
    PROOF_PROPERTY,
    TOKEN_PROPERTY,
    Snapshot,
    TableState,
)
from iceberg_maint.core.outcomes.attestation import Attestation, claims_since
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


def status_of(state: TableState, snapshot_id: int) -> VerificationStatus:
    found = find_commit(state, snapshot_id)
    assert isinstance(found, Verification)
    return found.status


def claimed(state: TableState, attested: Attestation | None = None) -> list[int]:
    return [s.snapshot_id for s in claims_since(state, attested)]


def append(snapshot_id: int, parent_id: int | None) -> Snapshot:
    return replace(snapshot(snapshot_id, parent_id), operation="append")


def test_claims_without_a_cursor_are_those_of_main_whose_parent_is_retained() -> None:
    state = state_of(snapshot(2, 1), snapshot(3, 2), append(4, 3), snapshot(5, 4), snapshot(9, 3), head=3)
    assert claimed(state) == [3, 5]
    assert claimed(state_of()) == []


def test_claims_after_a_cursor_are_newer_than_its_snapshot() -> None:
    state = state_of(snapshot(2, 1), snapshot(3, 2), append(4, 3), snapshot(5, 4))
    assert claimed(state, Attestation(3, 3)) == [5]
    assert claimed(state, Attestation(5, 5)) == []
    assert claimed(state, Attestation(77, 2)) == [3, 5], "the cursor expired or was rolled back"


def test_claims_of_a_branch_that_main_became_and_of_format_v1_are_found_without_the_cursor() -> None:
    branch = state_of(append(1, None), snapshot(2, 1), append(3, 2))
    assert claimed(branch, Attestation(77, 9)) == [2], "the cursor had a higher sequence number"
    first = [replace(s, sequence_number=0) for s in branch.snapshots]
    assert claimed(state_of(*first), Attestation(77, 0)) == [2]
    accepted = Attestation(77, 9).accept(2)
    assert (claimed(branch, accepted), accepted.accepted) == ([], (2,))


def test_row_delta_of_ours_and_of_amoro_claim_to_change_no_row() -> None:
    delta = replace(ours(2, 1), operation="overwrite")
    amoro = replace(append(3, 2), summary={"snapshot.producer": "OPTIMIZE"})
    assert claimed(state_of(append(1, None), delta, amoro)) == [2, 3]


def test_open_verdicts_end_when_accepted_or_rolled_back() -> None:
    red = Verification(VerificationStatus.RED, "t", 2, "d", maintainer="m")
    at = Attestation(1, 1).with_verdict(red).with_verdict(replace(red, snapshot_id=3)).at(snapshot(3, 2))
    assert (at.snapshot_id, at.judged, [v.snapshot_id for v in at.red]) == (3, 2, [2, 3])
    assert [v.snapshot_id for v in at.without(2).open] == [3]
    rolled_back = state_of(append(1, None), snapshot(2, 1), snapshot(3, 2), append(4, 1))
    assert at.of_main(rolled_back).open == ()


@pytest.mark.parametrize(
    ("status", "after", "left"),
    [
        (VerificationStatus.UNPROVABLE, None, [2]),
        (VerificationStatus.CONSISTENT, None, [2]),
        (VerificationStatus.RED, Side(1, 0, Fingerprint(1, ((1, 1),))), [2]),
        (VerificationStatus.ATTESTED, None, [2]),
        (VerificationStatus.ATTESTED, Side(1, 0, Fingerprint(1, ((1, 1),))), []),
    ],
)
def test_red_verdict_gives_way_to_a_proof_from_files_alone(
    status: VerificationStatus, after: Side | None, left: list[int]
) -> None:
    red = Verification(VerificationStatus.RED, "t", 2, "d", maintainer="m")
    at = Attestation(1, 1).with_verdict(red).with_verdict(replace(red, status=status, after=after))
    assert ([v.snapshot_id for v in at.red], at.unread, at.judged) == (left, (), 2)


def test_unread_commits_end_when_proved_rolled_back_or_without_their_parent() -> None:
    consistent = Verification(VerificationStatus.CONSISTENT, "t", 2, "d")
    at = Attestation(1, 1)
    for number in (2, 3, 4):
        at = at.with_verdict(replace(consistent, snapshot_id=number))
    assert (at.unread, at.open) == ((2, 3, 4), ())
    assert at.with_verdict(replace(consistent, snapshot_id=3, status=VerificationStatus.ATTESTED)).unread == (
        2,
        4,
    )
    assert at.of_main(state_of(snapshot(2, 1), snapshot(3, 2), snapshot(4, 3), head=1)).unread == (3,)


def metadata(judgement: Judgement, *facts: str, hazards: tuple[str, ...] = ()) -> MetadataVerdict:
    found, likely = (tuple(Violation(Rule.SCOPE, text) for text in of) for of in (facts, hazards))
    return MetadataVerdict(judgement, "2 files", found, likely, 30)


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        (metadata(Judgement.PROVED), VerificationStatus.ATTESTED),
        (metadata(Judgement.REFUTED, "f"), VerificationStatus.RED),
        (metadata(Judgement.OPEN), VerificationStatus.CONSISTENT),
        (metadata(Judgement.OPEN, hazards=("h",)), VerificationStatus.UNPROVABLE),
    ],
)
def test_metadata_alone_is_not_called_a_proof(verdict: MetadataVerdict, status: VerificationStatus) -> None:
    found = judge_by_metadata(COMMIT, verdict, reads_files=False)
    assert (found.status, found.file_bytes) == (status, 30)
    unread = "; its files were not read" in found.detail
    assert unread is (verdict.judgement is Judgement.OPEN)


def test_equal_rows_do_not_clear_a_commit_that_metadata_refutes() -> None:
    by_metadata = judge_by_metadata(COMMIT, metadata(Judgement.REFUTED, "f"), reads_files=True)
    equal = judge_commit(COMMIT, Evidence(Side(2, 0, ROWS), Side(1, 0, ROWS)))
    both = with_metadata(equal, by_metadata)
    assert (both.status, both.facts) == (VerificationStatus.RED, ("scope: f",))
    assert both.detail.startswith("scope: f; the same 3 rows before and after")


def test_find_takes_the_snapshot_asked_for_also_off_main() -> None:
    state = state_of(snapshot(1, None), ours(2, 1), ours(3, 1), head=1)
    found = find_commit(state, 3)
    assert isinstance(found, MaintenanceCommit)
    assert (found.snapshot_id, found.parent_id, found.batch_id) == (3, 1, "b3")


def test_find_commit_of_another_tool_has_neither_batch_nor_stored_proof() -> None:
    foreign = snapshot(2, 1, **{"trino_query_id": "q1", PROOF_PROPERTY: "{}"})
    found = find_commit(state_of(append(1, None), foreign), 2)
    assert isinstance(found, MaintenanceCommit)
    assert (found.maintainer, found.batch_id, found.stored) == ("Trino (query q1)", None, None)
    equal = judge_commit(found, Evidence(Side(2, 0, ROWS), Side(1, 0, ROWS)))
    assert equal.detail == "the same 3 rows before and after"


def test_find_snapshot_that_claims_nothing_says_so() -> None:
    assert status_of(state_of(ours(1, None), append(2, 1)), 2) is VerificationStatus.NO_CLAIM


def test_find_snapshot_without_a_parent_says_so() -> None:
    found = find_commit(state_of(ours(2, None)), 2)
    assert isinstance(found, Verification)
    assert (found.status, found.detail) == (VerificationStatus.UNPROVABLE, "snapshot 2 names no parent")


def test_find_snapshot_that_is_gone_is_unprovable() -> None:
    assert status_of(state_of(snapshot(1, None), ours(2, 1)), 7) is VerificationStatus.UNPROVABLE


@pytest.mark.parametrize("parent_id", [1, None])
def test_find_without_the_parent_is_unprovable(parent_id: int | None) -> None:
    assert status_of(state_of(ours(2, parent_id)), 2) is VerificationStatus.UNPROVABLE


@pytest.mark.parametrize("text", ["", "{}", "[]", "x", '{"fingerprint": 1}', "null"])
def test_find_with_a_proof_that_nobody_can_read_has_none_stored(text: str) -> None:
    spoiled = replace(ours(2, 1), summary={TOKEN_PROPERTY: "t", PROOF_PROPERTY: text})
    found = find_commit(state_of(snapshot(1, None), spoiled), 2)
    assert isinstance(found, MaintenanceCommit)
    assert found.stored is None


@pytest.mark.parametrize(
    ("fingerprint", "stored"),
    [
        (None, None),
        ("", None),
        ("a:b", None),
        ("xxh64x2-1:3:1", None),
        ("xxh64x2-1:3:1.2", Fingerprint(3, ((1, 2),))),
        (ROWS.text(), ROWS),
    ],
)
def test_find_reads_the_stored_fingerprint_and_none_of_a_footer_proof_or_a_broken_one(
    fingerprint: str | None, stored: Fingerprint | None
) -> None:
    found = find_commit(state_of(snapshot(1, None), ours(2, 1, fingerprint)), 2)
    assert isinstance(found, MaintenanceCommit)
    assert found.stored == stored


def test_find_of_a_commit_without_a_proof_has_none_stored() -> None:
    found = find_commit(state_of(snapshot(1, None), snapshot(2, 1, **{TOKEN_PROPERTY: "t"})), 2)
    assert isinstance(found, MaintenanceCommit)
    assert found.stored is None


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
    assert judged(ROWS, ROWS) == (V.ATTESTED, S.EQUAL)


def test_judge_other_rows_is_different_whatever_is_stored() -> None:
    assert judged(ROWS, OTHERS) == (V.RED, S.DIFFERENT)
    assert judged(OTHERS, ROWS) == (V.RED, S.EQUAL)
    assert judged(OTHERS, ROWS, "newer deletes") == (V.RED, S.NOT_COMPARABLE)


def test_judge_same_rows_that_are_not_the_stored_ones_is_different() -> None:
    assert judged(OTHERS, OTHERS) == (V.RED, S.DIFFERENT)


def test_judge_same_rows_without_a_word_on_the_stored_ones_is_proved() -> None:
    assert judged(OTHERS, OTHERS, "newer deletes") == (V.ATTESTED, S.NOT_COMPARABLE)
    assert judged(ROWS, ROWS, stored=None) == (V.ATTESTED, S.NOT_COMPARABLE)
    assert judged(ROWS, ROWS, stored=replace(ROWS, algorithm="old")) == (V.ATTESTED, S.NOT_COMPARABLE)


def test_judge_returns_both_fingerprints_if_they_differ() -> None:
    found = judge_commit(COMMIT, Evidence(Side(2, 0, OTHERS), Side(1, 0, ROWS)))
    assert OTHERS.text() in found.detail
    assert ROWS.text() in found.detail


def test_judge_positions_holds_what_was_added_against_what_was_stored() -> None:
    """Of a conversion the positions written are proved, those deleted in all are compared."""
    sides = Side(2, 1, ROWS), Side(2, 2, ROWS)
    seen = Evidence(*sides, compared=Compared.DELETED_POSITIONS, added=OTHERS)
    right = judge_commit(replace(COMMIT, stored=OTHERS), seen)
    assert (right.status, right.stored, right.compared) == (V.ATTESTED, S.EQUAL, Compared.DELETED_POSITIONS)
    assert right.detail.startswith("the same 3 deleted positions before and after")
    assert judge_commit(COMMIT, seen).status is V.RED


def test_judge_names_the_first_file_that_differs() -> None:
    found = judge_commit(COMMIT, Evidence(Side(2, 0, OTHERS), Side(1, 0, ROWS), where="a.parquet"))
    assert "first in a.parquet" in found.detail


def test_judge_of_sides_without_a_file_says_that_nothing_is_read_differently() -> None:
    none = Side(0, 0, Fingerprint(0, ((0, 0), (0, 0))))
    found = judge_commit(replace(COMMIT, stored=none.fingerprint), Evidence(none, none))
    assert (found.status, found.stored) == (V.ATTESTED, S.EQUAL)
    assert "the same data files with the same deletes" in found.detail
