"""Settling: every combination of what the ledger and the table may say of an attempt."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from iceberg_maint.core.model.table_state import TOKEN_PROPERTY, Snapshot, TableState
from iceberg_maint.core.outcomes.outcome import CommitStatus
from iceberg_maint.core.outcomes.record import AttemptEvidence, settle
from iceberg_maint_tests.support.core.values import data, table_of

C, R, U = CommitStatus.COMMITTED, CommitStatus.REJECTED, CommitStatus.UNKNOWN


def snapshot(snapshot_id: int, parent_id: int | None, **summary: str) -> Snapshot:
    return Snapshot(snapshot_id, parent_id, snapshot_id, 0, "replace", summary, "")


def state_of(head: int | None, *snapshots: Snapshot) -> TableState:
    by_id = {s.snapshot_id: s for s in snapshots}
    base = table_of([data("a", 1)]).state
    return replace(base, snapshot=None if head is None else by_id[head], snapshots=snapshots)


LINE = (snapshot(1, None), snapshot(2, 1), snapshot(3, 2))
OLD, NEW = "s3://w/t/metadata/00007-a.metadata.json", "s3://w/t/metadata/00010-b.metadata.json"
EVIDENCE = AttemptEvidence(attempted=True, token="t", base_snapshot_id=2, base_location=OLD)


def test_settle_never_attempted_is_rejected() -> None:
    found = settle(replace(EVIDENCE, attempted=False), state_of(2, *LINE))
    assert (found.status, found.snapshot_id) == (R, None)


def test_settle_never_attempted_but_in_the_table_is_committed() -> None:
    """The ledger was put back to a backup from before the ATTEMPT."""
    ours = replace(LINE[2], summary={TOKEN_PROPERTY: "t"})
    evidence = replace(EVIDENCE, attempted=False)
    assert settle(evidence, state_of(3, *LINE[:2], ours)).status is C
    assert settle(replace(evidence, reachable_file="f"), state_of(3, *LINE)).status is C


def test_settle_token_in_head_is_committed_there() -> None:
    ours = replace(LINE[2], summary={TOKEN_PROPERTY: "t"})
    found = settle(EVIDENCE, state_of(3, *LINE[:2], ours))
    assert (found.status, found.snapshot_id) == (C, 3)


def test_settle_token_off_main_is_committed() -> None:
    """Main was rolled back behind our commit: the snapshot is there, so its files are in use."""
    ours = snapshot(3, 2, **{TOKEN_PROPERTY: "t"})
    assert settle(EVIDENCE, state_of(2, *LINE[:2], ours)).status is C


def test_settle_token_of_another_attempt_is_not_ours() -> None:
    other = replace(LINE[2], summary={TOKEN_PROPERTY: "tt"})
    assert settle(EVIDENCE, state_of(3, *LINE[:2], other)).status is R


def test_settle_file_reachable_without_token_is_committed() -> None:
    """The snapshot with the token has expired; a file it added lives on."""
    found = settle(replace(EVIDENCE, reachable_file="f"), state_of(3, *LINE))
    assert (found.status, found.snapshot_id) == (C, None)
    assert "f" in found.why


def test_settle_head_still_at_base_is_unknown() -> None:
    assert settle(EVIDENCE, state_of(2, *LINE[:2])).status is U


def test_settle_head_past_base_without_token_is_rejected() -> None:
    assert settle(EVIDENCE, state_of(3, *LINE)).status is R


def test_settle_broken_ancestry_is_unknown() -> None:
    """A snapshot between base and head has expired: it may have been ours."""
    gap = (*LINE[:2], snapshot(4, 3))
    assert settle(EVIDENCE, state_of(4, *gap)).status is U


def test_settle_base_expired_is_unknown() -> None:
    assert settle(replace(EVIDENCE, base_snapshot_id=99), state_of(3, *LINE)).status is U


def test_settle_base_expired_behind_the_oldest_snapshot_is_rejected() -> None:
    """What came after the base on main is retained, and is not ours."""
    assert settle(EVIDENCE, state_of(3, LINE[2])).status is R
    ours = replace(LINE[2], summary={TOKEN_PROPERTY: "t"})
    assert settle(EVIDENCE, state_of(3, ours)).status is C


def test_settle_rolled_back_behind_base_is_unknown() -> None:
    assert settle(EVIDENCE, state_of(1, *LINE)).status is U


GAP = (LINE[0], snapshot(5, 4), snapshot(6, 5))


def at(location: str, head: int | None, *snapshots: Snapshot) -> TableState:
    return replace(state_of(head, *snapshots), metadata_location=location)


def test_settle_history_expired_and_no_trace_is_rejected() -> None:
    """What came after the base cannot be told any more; nothing of the attempt is left or can come."""
    found = settle(EVIDENCE, at(NEW, 6, *GAP))
    assert found.status is R
    assert "none of its files is in the table" in found.why


def test_settle_rolled_back_to_before_the_base_and_no_trace_is_rejected() -> None:
    assert settle(EVIDENCE, at(NEW, 1, *LINE)).status is R


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(at(OLD, 6, *GAP), id="metadata no newer than the base's"),
        pytest.param(at("s3://w/t/metadata/00006-c.metadata.json", 6, *GAP), id="older: a cache"),
        pytest.param(at("s3://w/t/metadata/latest.json", 6, *GAP), id="of no known version"),
        pytest.param(at(NEW, 6, GAP[2]), id="only the snapshot of main is shown"),
        pytest.param(at(NEW, 2, *LINE), id="main is at the base: a late swap can win"),
    ],
)
def test_settle_no_trace_where_history_may_just_not_be_shown_is_unknown(state: TableState) -> None:
    assert settle(EVIDENCE, state).status is U


@pytest.mark.parametrize("now", ["v10.metadata.json", "v10.gz.metadata.json", "00010-b.metadata.json.gz"])
def test_settle_reads_the_versions_of_metadata_as_iceberg_names_them(now: str) -> None:
    assert settle(EVIDENCE, at(f"s3://w/t/metadata/{now}", 6, *GAP)).status is R


def test_settle_empty_table_is_unknown() -> None:
    assert settle(EVIDENCE, state_of(None)).status is U


@pytest.mark.parametrize(
    ("attempted", "token", "file", "head", "intact"),
    list(itertools.product([False, True], [False, True], [False, True], [2, 4], [False, True])),
)
def test_settle_every_combination(attempted: bool, token: bool, file: bool, head: int, intact: bool) -> None:
    middle = snapshot(3, 2, **({TOKEN_PROPERTY: "t"} if token else {}))
    chain = [*LINE[:2], *([middle] if intact or token else []), snapshot(4, 3)]
    evidence = AttemptEvidence(attempted, "t", 2, "f" if file else None)
    found = settle(evidence, state_of(head, *chain)).status
    if token or file:
        assert found is C
    elif not attempted or (head == 4 and intact):
        assert found is R
    else:
        assert found is U
