"""Settling an attempt whose process never reported back."""

from __future__ import annotations

from dataclasses import dataclass

from iceberg_maint.core.model.metadata_version import metadata_version
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.outcomes.outcome import CommitStatus


@dataclass(frozen=True, slots=True)
class AttemptEvidence:
    """What the ledger and the table say about one attempt.

    `token`, `base_snapshot_id` and `base_location` (of the base's metadata) come from the ATTEMPT
    row; `attempted` is False when there is none. `reachable_file` is an intent file found live in
    some retained snapshot.
    """

    attempted: bool
    token: str
    base_snapshot_id: int | None
    reachable_file: str | None = None
    base_location: str | None = None


@dataclass(frozen=True, slots=True)
class Settlement:
    """The settled status. `snapshot_id` is the snapshot that carries the token, if retained; `lost` is as of
    `CommitResult`."""

    status: CommitStatus
    snapshot_id: int | None
    why: str
    lost: tuple[str, ...] = ()


def settle(evidence: AttemptEvidence, state: TableState) -> Settlement:
    """COMMITTED when the token or a file of the attempt is in the table, whatever the ledger says:
    it may be a backup's. REJECTED when the commit was never attempted, or when main has moved past
    its base without it, so that a late swap can no longer win; otherwise UNKNOWN.
    """
    found = state.snapshot_by_token(evidence.token)
    if found is not None:
        return Settlement(CommitStatus.COMMITTED, found.snapshot_id, "its token is in the table")
    if evidence.reachable_file is not None:
        return Settlement(CommitStatus.COMMITTED, None, f"its file {evidence.reachable_file} is in the table")
    if not evidence.attempted:
        return Settlement(CommitStatus.REJECTED, None, "the commit was never attempted")
    if _moved_past(evidence, state):
        return Settlement(CommitStatus.REJECTED, None, "the table moved past its base without its token")
    if _left_no_trace(evidence, state):
        return Settlement(
            CommitStatus.REJECTED,
            None,
            "its base is no ancestor of the table's snapshot any more, and nothing of it is in the table",
        )
    return Settlement(CommitStatus.UNKNOWN, None, "neither its token nor a later commit is in the table")


def _moved_past(evidence: AttemptEvidence, state: TableState) -> bool:
    """Whether the base's successor on main is known: it is not the attempt's, whose token it lacks."""
    chain = state.ancestors()
    bases = {s.snapshot_id for s in chain[1:]} | {s.parent_id for s in chain[-1:]}
    return evidence.base_snapshot_id is not None and evidence.base_snapshot_id in bases


def _left_no_trace(evidence: AttemptEvidence, state: TableState) -> bool:
    """Whether the history that would tell has expired or was rolled back, and what is left of the
    table neither has anything of the attempt nor can take it in: whatever came of it has no effect
    by now. Not where the history may just not be shown (a catalog may load but the snapshots that
    are referenced), nor by metadata that may be older than the base (a cache).
    """
    head = state.snapshot
    if head is None or head.snapshot_id == evidence.base_snapshot_id or evidence.base_location is None:
        return False
    shown = head.parent_id is None or len(state.ancestors()) > 1
    now, base = metadata_version(state.metadata_location), metadata_version(evidence.base_location)
    return shown and now is not None and base is not None and now > base
