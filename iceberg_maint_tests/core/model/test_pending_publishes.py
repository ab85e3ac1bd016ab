"""What a commit to main would keep from being published: branches ahead of main, and staged changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from iceberg_maint.core.model.other_writers import (
    PendingPublish,
    PublishKind,
    pending_publishes,
    pending_publishes_of,
)
from iceberg_maint.core.model.table_state import Ref, Snapshot, TableState
from iceberg_maint_tests.support.core.snapshots import line, snapshot, state_of

MAIN = Ref("main", "branch", 3)


def staged(number: int, operation: str, parent: int | None, **summary: str) -> Snapshot:
    return replace(snapshot(number, 0, parent=parent, wap__id=f"w{number}", **summary), operation=operation)


def document(state: TableState) -> dict[str, Any]:
    return {
        "current-snapshot-id": state.snapshot.snapshot_id if state.snapshot else -1,
        "refs": {r.name: {"type": r.kind, "snapshot-id": r.snapshot_id} for r in state.refs},
        "snapshots": [
            {
                "snapshot-id": s.snapshot_id,
                "timestamp-ms": s.timestamp_ms,
                "summary": {**s.summary, "operation": s.operation},
                **({} if s.parent_id is None else {"parent-snapshot-id": s.parent_id}),
            }
            for s in state.snapshots
        ],
    }


def pending(*snapshots: Snapshot, refs: tuple[Ref, ...] = ()) -> tuple[PendingPublish, ...]:
    """By both readings: the pinned state, and the metadata that a commit builds on."""
    state = state_of(*line(3), *snapshots, refs=(MAIN, *refs))
    found = pending_publishes(state)
    assert pending_publishes_of(document(state)) == found
    return found


def test_branch_ahead_of_main_is_pending_since_its_first_snapshot() -> None:
    first, second = snapshot(4, 2, parent=3), snapshot(5, 1, parent=4)
    assert pending(first, second, refs=(Ref("audit", "branch", 5),)) == (
        PendingPublish(PublishKind.BRANCH, "audit", 5, first.timestamp_ms),
    )


@pytest.mark.parametrize(
    ("ref", "more"),
    [
        (Ref("at head", "branch", 3), []),
        (Ref("behind", "branch", 2), []),
        (Ref("diverged", "branch", 4), [snapshot(4, 0, parent=2)]),
        (Ref("history gone", "branch", 5), [snapshot(5, 0, parent=4)]),
        (Ref("a tag", "tag", 4), [snapshot(4, 0, parent=3)]),
        (Ref("snapshot gone", "branch", 9), []),
        (Ref("circle", "branch", 5), [snapshot(4, 0, parent=5), snapshot(5, 0, parent=4)]),
    ],
)
def test_ref_that_a_commit_to_main_changes_nothing_for_is_not_pending(ref: Ref, more: list[Snapshot]) -> None:
    assert pending(*more, refs=(ref,)) == ()


@pytest.mark.parametrize(
    ("operation", "parent", "summary", "is_pending"),
    [
        ("overwrite", 3, {}, True),
        ("delete", 3, {}, True),
        ("replace", 3, {}, True),
        ("overwrite", 2, {}, False),
        ("append", 3, {}, False),
        ("overwrite", 3, {"replace_partitions": "true"}, True),
        ("overwrite", 2, {"replace_partitions": "true"}, True),
        ("overwrite", None, {"replace_partitions": "true"}, True),
        ("overwrite", 99, {"replace_partitions": "true"}, False),
    ],
)
def test_staged_change_is_pending_while_it_can_be_picked(
    operation: str, parent: int | None, summary: dict[str, str], is_pending: bool
) -> None:
    change = staged(7, operation, parent, **summary)
    expected = PendingPublish(PublishKind.STAGED, "w7", 7, change.timestamp_ms)
    assert pending(change) == ((expected,) if is_pending else ())


def test_published_staged_change_is_not_pending() -> None:
    change = staged(7, "overwrite", 3)
    on_a_branch = pending(change, refs=(Ref("kept", "branch", 7),))
    assert [(p.kind, p.name) for p in on_a_branch] == [(PublishKind.BRANCH, "kept")]
    assert pending(change, snapshot(8, 0, parent=2, published_wap_id="w7")) == ()
    assert pending(change, snapshot(8, 0, parent=2, source_snapshot_id="7")) == ()


def test_branches_and_staged_changes_come_by_name() -> None:
    snapshots = [snapshot(n, 0, parent=3) for n in (4, 5)]
    found = pending(
        *snapshots,
        staged(8, "delete", 3),
        staged(7, "delete", 3),
        refs=(Ref("b", "branch", 4), Ref("a", "branch", 5)),
    )
    assert [p.name for p in found] == ["a", "b", "w7", "w8"]


def test_empty_table_has_nothing_pending() -> None:
    assert pending_publishes_of({"current-snapshot-id": -1}) == ()
    assert pending_publishes(replace(state_of(*line(1)), snapshot=None, snapshots=())) == ()
