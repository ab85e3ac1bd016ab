"""Settles an attempt whose process never reported back."""

from __future__ import annotations

from dataclasses import dataclass

from iceberg_maint.core.model.metadata_version import metadata_version
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.core.outcomes.outcome import CommitStatus


@dataclass(frozen=True, slots=True)
class AttemptEvidence:
    """The evidence of the ledger and the table about one attempt.

    `token`, `base_snapshot_id` and `base_location` (of the base's metadata) come from the ATTEMPT row.
    `attempted` is False if there is none. `reachable_file` is a file of the intent that is live in some
    retained snapshot.
    """

    attempted: bool
    token: str
    base_snapshot_id: int | None
    reachable_file: str | None = None
    base_location: str | None = None


@dataclass(frozen=True, slots=True)
class Settlement:
    """The settled status. `snapshot_id` is the snapshot that carries the token, if retained. `lost` is as
    in `CommitResult`."""

    status: CommitStatus
    snapshot_id: int | None
    why: str
    lost: tuple[str, ...] = ()


def settle(evidence: AttemptEvidence, state: TableState) -> Settlement:
    """Returns COMMITTED if the token or a file of the attempt is in the table, whatever the ledger says:
    the ledger may be restored from a backup. Returns REJECTED if the commit was never attempted, or if
    main has moved past its base without it, so that a late swap can no longer win. Returns UNKNOWN
    otherwise."""
    committed = state.snapshot_by_token(evidence.token)
    if committed is not None:
        return Settlement(CommitStatus.COMMITTED, committed.snapshot_id, "its token is in the table")
    if evidence.reachable_file is not None:
        return Settlement(CommitStatus.COMMITTED, None, f"its file {evidence.reachable_file} is in the table")
    if not evidence.attempted:
        return Settlement(CommitStatus.REJECTED, None, "no commit was attempted")
    if _moved_past(evidence, state):
        return Settlement(CommitStatus.REJECTED, None, "the table moved past its base without its token")
    if _left_no_trace(evidence, state):
        return Settlement(
            CommitStatus.REJECTED,
            None,
            "its base is no longer an ancestor of the table's snapshot, and none of its files is in the table",
        )
    return Settlement(CommitStatus.UNKNOWN, None, "neither its token nor a later commit is in the table")


def _moved_past(evidence: AttemptEvidence, state: TableState) -> bool:
    """Returns whether the base's successor on main is known. That successor is not the attempt's, because
    it lacks the token."""
    chain = state.ancestors()
    bases = {s.snapshot_id for s in chain[1:]} | {s.parent_id for s in chain[-1:]}
    return evidence.base_snapshot_id is not None and evidence.base_snapshot_id in bases


def _left_no_trace(evidence: AttemptEvidence, state: TableState) -> bool:
    """Returns whether the attempt has no effect now, although its history has expired or was rolled back:
    the table holds nothing of the attempt and can no longer accept its commit. False if the history may
    only be hidden (a catalog may load only referenced snapshots), and if the metadata may be older than
    the base (a cache)."""
    head = state.snapshot
    if head is None or head.snapshot_id == evidence.base_snapshot_id or evidence.base_location is None:
        return False
    history_is_visible = head.parent_id is None or len(state.ancestors()) > 1
    now, base = metadata_version(state.metadata_location), metadata_version(evidence.base_location)
    return history_is_visible and now is not None and base is not None and now > base
