"""Verification: a maintenance commit proved again, from the files it removed and added."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum

from iceberg_maint.core.model.codec import from_data
from iceberg_maint.core.model.table_state import (
    BATCH_PROPERTY,
    PROOF_PROPERTY,
    TOKEN_PROPERTY,
    Snapshot,
    TableState,
)
from iceberg_maint.core.outcomes.proof import Fingerprint, Proof


class VerificationStatus(StrEnum):
    """What verifying a snapshot ended with."""

    PROVED = "PROVED"
    DIFFERENT = "DIFFERENT"
    UNPROVABLE = "UNPROVABLE"
    NOT_OURS = "NOT_OURS"


class StoredProof(StrEnum):
    """How the rows found now compare with the fingerprint that the commit stored in its summary."""

    EQUAL = "EQUAL"
    DIFFERENT = "DIFFERENT"
    NOT_COMPARABLE = "NOT_COMPARABLE"


class Compared(StrEnum):
    """What was compared: every value of the rows that readers see or, where both snapshots have
    the same data files, the positions of the rows that readers do not see in these.
    """

    ROWS = "rows"
    DELETED_POSITIONS = "deleted positions"


@dataclass(frozen=True, slots=True)
class MaintenanceCommit:
    """A snapshot of ours and its parent, both retained. `stored` is the fingerprint in its summary,
    None where only footers were compared then.
    """

    table: str
    table_uuid: str
    snapshot_id: int
    parent_id: int
    batch_id: str
    stored: Fingerprint | None


@dataclass(frozen=True, slots=True)
class Side:
    """What readers of one snapshot see, or do not see, of the data files that they read in another
    way than those of the other snapshot. `delete_files` is how many delete files apply to these.
    """

    data_files: int
    delete_files: int
    fingerprint: Fingerprint


@dataclass(frozen=True, slots=True)
class Evidence:
    """Both sides, read from the files. `incomparable` says why the stored fingerprint cannot be
    held against them, None when it can: against `added`, what the commit's own files hold, or
    where that is None against the side after. `where` names the first data file that differs.
    """

    before: Side
    after: Side
    incomparable: str | None = None
    compared: Compared = Compared.ROWS
    added: Fingerprint | None = None
    where: str = ""


@dataclass(frozen=True, slots=True)
class Verification:
    """The verdict on one snapshot, with what was seen; `detail` is one sentence for people."""

    status: VerificationStatus
    table: str
    snapshot_id: int | None
    detail: str
    parent_id: int | None = None
    batch_id: str | None = None
    before: Side | None = None
    after: Side | None = None
    stored: StoredProof | None = None
    compared: Compared | None = None


def find_commit(state: TableState, snapshot_id: int | None) -> MaintenanceCommit | Verification:
    """The commit to verify: this snapshot, by default the newest ancestor of the head that carries
    our token. Where there is none, or its parent is gone, that is the verdict.
    """
    table = str(state.table)
    if snapshot_id is None:
        found = next((s for s in state.ancestors() if TOKEN_PROPERTY in s.summary), None)
        if found is None:
            return Verification(
                VerificationStatus.NOT_OURS, table, None, "no retained snapshot carries a token of ours"
            )
    else:
        found = state.snapshot_by_id(snapshot_id)
        if found is None:
            return Verification(
                VerificationStatus.UNPROVABLE,
                table,
                snapshot_id,
                f"snapshot {snapshot_id} is not retained: expired, or never there",
            )
    return _of_snapshot(state, found)


def _of_snapshot(state: TableState, found: Snapshot) -> MaintenanceCommit | Verification:
    table, number = str(state.table), found.snapshot_id
    if TOKEN_PROPERTY not in found.summary:
        return Verification(
            VerificationStatus.NOT_OURS, table, number, f"snapshot {number} carries no token of ours"
        )
    batch = found.summary.get(BATCH_PROPERTY, "")
    parent = None if found.parent_id is None else state.snapshot_by_id(found.parent_id)
    if parent is None:
        return Verification(
            VerificationStatus.UNPROVABLE,
            table,
            number,
            f"parent {found.parent_id} of snapshot {number} has been expired",
            found.parent_id,
            batch,
        )
    stored = _stored(found.summary.get(PROOF_PROPERTY))
    return MaintenanceCommit(table, state.uuid, number, parent.snapshot_id, batch, stored)


def _stored(text: str | None) -> Fingerprint | None:
    """What cannot be read any more proves nothing, and keeps nothing from being proved anew."""
    try:
        proof = None if text is None else from_data(Proof, json.loads(text))
        return None if proof is None or proof.fingerprint is None else Fingerprint.parse(proof.fingerprint)
    except ValueError:
        return None


def judge_commit(commit: MaintenanceCommit, seen: Evidence) -> Verification:
    """PROVED when both sides show the same and the commit's files are those proved back then, as
    far as that can be compared; else DIFFERENT.
    """
    before, after = seen.before.fingerprint, seen.after.fingerprint
    stored, then = _judge_stored(commit, seen)
    if before != after:
        at = f", first in {seen.where}" if seen.where else ""
        detail = f"{seen.compared} before {before.text()} are not those after {after.text()}{at}"
    elif stored is StoredProof.DIFFERENT:
        detail = f"{after.text()} before and after, but not what the commit proved"
    elif seen.before.data_files == seen.after.data_files == 0:
        detail = "readers of both read the same data files with the same deletes"
    else:
        detail = f"the same {after.rows} {seen.compared} before and after"
    same = before == after and stored is not StoredProof.DIFFERENT
    return Verification(
        VerificationStatus.PROVED if same else VerificationStatus.DIFFERENT,
        commit.table,
        commit.snapshot_id,
        f"{detail}; {then}",
        commit.parent_id,
        commit.batch_id,
        seen.before,
        seen.after,
        stored,
        seen.compared,
    )


def _judge_stored(commit: MaintenanceCommit, seen: Evidence) -> tuple[StoredProof, str]:
    now = seen.after.fingerprint if seen.added is None else seen.added
    incomparable = seen.incomparable
    if incomparable is None and commit.stored is None:
        incomparable = "the commit stored none"
    if incomparable is None and commit.stored is not None and commit.stored.algorithm != now.algorithm:
        incomparable = f"it is of algorithm {commit.stored.algorithm}"
    if incomparable is not None:
        why = f"the fingerprint stored with the commit says nothing: {incomparable}"
        return StoredProof.NOT_COMPARABLE, why
    if commit.stored == now:
        return StoredProof.EQUAL, "it is the fingerprint stored with the commit"
    stored = "" if commit.stored is None else commit.stored.text()
    return StoredProof.DIFFERENT, f"the fingerprint stored with the commit is {stored}"


def unprovable(commit: MaintenanceCommit, why: str) -> Verification:
    """The verdict when what would be compared is gone."""
    return Verification(
        VerificationStatus.UNPROVABLE,
        commit.table,
        commit.snapshot_id,
        why,
        commit.parent_id,
        commit.batch_id,
    )
