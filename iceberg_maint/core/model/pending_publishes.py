"""Pending publishes: branches and staged snapshots that can be published only until main has another snapshot.

Iceberg's `fast_forward` requires main's head to be an ancestor of the branch. `CherryPickOperation` applies a staged
append to any head. A staged dynamic overwrite requires that no file came to its partitions since its parent. Any
other staged change requires its parent to be main's head.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from iceberg_maint.core.model.table_state import Ref, Snapshot, TableState

MAIN_BRANCH = "main"
STAGED_PROPERTY = "wap.id"
"""Snapshot summary key of write-audit-publish: the id under which a snapshot was staged."""
_PUBLISHED_PROPERTY = "published-wap-id"
_PICKED_PROPERTY = "source-snapshot-id"
_DYNAMIC_PROPERTY = "replace-partitions"


class PublishKind(StrEnum):
    """What is to be published: a branch by `fast_forward`, or a staged snapshot by `cherrypick_snapshot`."""

    BRANCH = "branch"
    STAGED = "staged"


@dataclass(frozen=True, slots=True)
class PendingPublish:
    """A branch by its name or a staged snapshot by its wap.id. `snapshot_id` is its head. `since_ms` is the commit
    time of its oldest snapshot that main does not have."""

    kind: PublishKind
    name: str
    snapshot_id: int
    since_ms: int


def pending_publishes(state: TableState) -> tuple[PendingPublish, ...]:
    """Returns what a commit to main would keep from being published, by name."""
    head_id = None if state.snapshot is None else state.snapshot.snapshot_id
    return _pending(state.refs, state.snapshots, head_id)


def pending_publishes_of(metadata: Mapping[str, Any]) -> tuple[PendingPublish, ...]:
    """Returns the same from a table metadata document (spec: "Table Metadata")."""
    refs = [
        Ref(name, node["type"], int(node["snapshot-id"]))
        for name, node in (metadata.get("refs") or {}).items()
    ]
    snapshots = []
    for node in metadata.get("snapshots") or ():
        summary = node.get("summary") or {}
        snapshots.append(
            Snapshot(
                snapshot_id=int(node["snapshot-id"]),
                parent_id=node.get("parent-snapshot-id"),
                sequence_number=int(node.get("sequence-number", 0)),
                timestamp_ms=int(node["timestamp-ms"]),
                operation=summary.get("operation", ""),
                summary=summary,
                manifest_list="",
            )
        )
    head_id = metadata.get("current-snapshot-id")
    return _pending(refs, snapshots, None if head_id in (None, -1) else int(head_id))


def unpublished(snapshots: Sequence[Snapshot], on_branches: Collection[int]) -> Iterator[Snapshot]:
    """Yields the snapshots staged by write-audit-publish whose rows no branch shows yet."""
    published = {s.summary.get(_PUBLISHED_PROPERTY) for s in snapshots}
    picked = {s.summary.get(_PICKED_PROPERTY) for s in snapshots}
    for s in snapshots:
        wap_id = s.summary.get(STAGED_PROPERTY)
        if wap_id is None or s.snapshot_id in on_branches:
            continue
        if wap_id not in published and str(s.snapshot_id) not in picked:
            yield s


def _pending(
    refs: Sequence[Ref], snapshots: Sequence[Snapshot], head_id: int | None
) -> tuple[PendingPublish, ...]:
    by_id = {s.snapshot_id: s for s in snapshots}
    if head_id not in by_id:
        return ()
    branches = [r for r in refs if r.kind == "branch" and r.name != MAIN_BRANCH]
    ahead = []
    for ref in branches:
        beyond: Snapshot | None = None
        for snapshot in _ancestors(by_id, ref.snapshot_id):
            if snapshot.snapshot_id == head_id:
                break
            beyond = snapshot
        else:
            continue  # main's head is no ancestor: the branch cannot be fast-forwarded any more
        if beyond is not None:
            ahead.append(PendingPublish(PublishKind.BRANCH, ref.name, ref.snapshot_id, beyond.timestamp_ms))
    if not any(STAGED_PROPERTY in s.summary for s in snapshots):
        return tuple(sorted(ahead, key=lambda p: p.name))
    on_main = {s.snapshot_id for s in _ancestors(by_id, head_id)}
    on_branches = on_main.union(s.snapshot_id for r in branches for s in _ancestors(by_id, r.snapshot_id))
    staged = [
        PendingPublish(PublishKind.STAGED, s.summary[STAGED_PROPERTY], s.snapshot_id, s.timestamp_ms)
        for s in unpublished(snapshots, on_branches)
        if _ends_with_a_commit(s, head_id, on_main)
    ]
    return (*sorted(ahead, key=lambda p: p.name), *sorted(staged, key=lambda p: (p.name, p.snapshot_id)))


def _ends_with_a_commit(staged: Snapshot, head_id: int | None, on_main: Collection[int]) -> bool:
    """Whether the snapshot can be published now, and perhaps not after a commit to main."""
    if staged.operation == "append":
        return False
    if staged.summary.get(_DYNAMIC_PROPERTY) == "true":
        return staged.parent_id is None or staged.parent_id in on_main
    return staged.parent_id == head_id


def _ancestors(by_id: Mapping[int, Snapshot], snapshot_id: int | None) -> Iterator[Snapshot]:
    """Yields the snapshot and its retained ancestors, each once, also where damaged metadata form a circle."""
    passed: set[int] = set()
    while snapshot_id in by_id and snapshot_id not in passed:
        assert snapshot_id is not None
        passed.add(snapshot_id)
        yield by_id[snapshot_id]
        snapshot_id = by_id[snapshot_id].parent_id
