"""Settling an attempt whose process never reported back."""

from __future__ import annotations

from dataclasses import dataclass

from iceberg_maint.core.outcome import CommitStatus
from iceberg_maint.core.state import TableState


@dataclass(frozen=True, slots=True)
class AttemptEvidence:
    """What the ledger and the table say about one attempt.

    `token` and `base_snapshot_id` come from the ATTEMPT row; `attempted` is False when there is
    none. `reachable_file` is an intent file found live in some retained snapshot.
    """

    attempted: bool
    token: str
    base_snapshot_id: int | None
    reachable_file: str | None = None


@dataclass(frozen=True, slots=True)
class Settlement:
    """The settled status. `snapshot_id` is the snapshot that carries the token, if retained."""

    status: CommitStatus
    snapshot_id: int | None
    why: str


def settle(evidence: AttemptEvidence, state: TableState) -> Settlement:
    """COMMITTED when the token or a file of the attempt is in the table; REJECTED when the base
    is an ancestor of a head that has moved past it, so that a late swap can no longer win;
    otherwise UNKNOWN.
    """
    if not evidence.attempted:
        return Settlement(CommitStatus.REJECTED, None, "the commit was never attempted")
    found = state.snapshot_by_token(evidence.token)
    if found is not None:
        return Settlement(CommitStatus.COMMITTED, found.snapshot_id, "its token is in the table")
    if evidence.reachable_file is not None:
        return Settlement(CommitStatus.COMMITTED, None, f"its file {evidence.reachable_file} is in the table")
    head = state.snapshot
    chain = {s.snapshot_id for s in state.ancestors()}
    base = evidence.base_snapshot_id
    if head is not None and base is not None and base in chain and head.snapshot_id != base:
        return Settlement(CommitStatus.REJECTED, None, "the table moved past its base without its token")
    return Settlement(CommitStatus.UNKNOWN, None, "neither its token nor a later commit is in the table")
