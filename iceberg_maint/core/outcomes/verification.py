"""Verification: the evidence that the rows written are the rows read, of commits of this program and of others."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum

from iceberg_maint.core.model.codec import from_data
from iceberg_maint.core.model.other_writers import is_maintenance, writer_name
from iceberg_maint.core.model.table_state import (
    BATCH_PROPERTY,
    PROOF_PROPERTY,
    TOKEN_PROPERTY,
    TableState,
)

FINGERPRINT_ALGORITHM = "xxh64x2-1"
"""A row is xxhash64(XOR over columns j of xxhash64(j, value)), in two lanes. A table is the row count and
the sums of the low and high 32 bits. Every fingerprint stores this id; a new definition gets a new id."""

FILES_ALGORITHM = "sha256-files-1"
"""The algorithm of the files that `columnar` writes. Sums modulo 2^64 of the four big-endian quarters of
SHA-256(contents) over the data files, with the sum of their record counts. Files add up."""

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """An order-independent fingerprint of a multiset of rows. Fingerprints of disjoint parts can be
    added.

    Each lane is the pair (sum of low 32 bits, sum of high 32 bits), modulo 2^64.
    """

    rows: int
    lanes: tuple[tuple[int, int], ...]
    algorithm: str = FINGERPRINT_ALGORITHM

    def __add__(self, other: Fingerprint) -> Fingerprint:
        if self.algorithm != other.algorithm or len(self.lanes) != len(other.lanes):
            raise ValueError("fingerprints of different algorithms cannot be added")
        lanes = tuple(
            ((a[0] + b[0]) & _MASK, (a[1] + b[1]) & _MASK)
            for a, b in zip(self.lanes, other.lanes, strict=True)
        )
        return Fingerprint(self.rows + other.rows, lanes, self.algorithm)

    def text(self) -> str:
        """Returns `algorithm:rows:lane,lane` in hexadecimal, for snapshot summaries."""
        lanes = ",".join(f"{lo:x}.{hi:x}" for lo, hi in self.lanes)
        return f"{self.algorithm}:{self.rows}:{lanes}"

    @classmethod
    def parse(cls, text: str) -> Fingerprint:
        """Reads a text that `text` wrote; raises ValueError for any other text."""
        algorithm, rows, lanes = text.split(":")
        pairs = []
        for lane in lanes.split(","):
            low, high = lane.split(".")
            pairs.append((int(low, 16), int(high, 16)))
        fingerprint = cls(int(rows), tuple(pairs), algorithm)
        if fingerprint.text() != text:
            raise ValueError(f"'{text}' is not a fingerprint")
        return fingerprint


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of a comparison. `equal` is the verdict; `detail` names the first difference.

    `removed_records` are rows dropped by deletes: kept + removed = read. `sample` says which rows an independent decoder
    compared, or why it compared none; None if the batch was not drawn for that.
    """

    level: str
    equal: bool
    input_records: int
    output_records: int
    removed_records: int
    fingerprint: str | None = None
    detail: str = ""
    sample: str | None = None


class VerificationStatus(StrEnum):
    """The verdict on a snapshot that claims to change no row.

    ATTESTED: every row is proved to be kept. CONSISTENT: its metadata does not contradict the claim, and its files were not
    read. RED: rows were lost or brought back, or the commit changed what it must keep. UNPROVABLE: what a proof needs is
    gone, cannot be read, or is more than the policy reads. NO_CLAIM: the snapshot does not claim to change no row.
    """

    ATTESTED = "ATTESTED"
    CONSISTENT = "CONSISTENT"
    RED = "RED"
    UNPROVABLE = "UNPROVABLE"
    NO_CLAIM = "NO_CLAIM"


class StoredProof(StrEnum):
    """The comparison of the rows read now with the fingerprint in the commit's summary."""

    EQUAL = "EQUAL"
    DIFFERENT = "DIFFERENT"
    NOT_COMPARABLE = "NOT_COMPARABLE"


class Compared(StrEnum):
    """What was compared: every value of the visible rows or, if both snapshots have the same data files,
    the positions of the deleted rows in them."""

    ROWS = "rows"
    DELETED_POSITIONS = "deleted positions"


@dataclass(frozen=True, slots=True)
class MaintenanceCommit:
    """A snapshot that claims to change no row and its parent, both retained. `maintainer` made it. `batch_id` is that of
    this program, else None. `stored` is the fingerprint in its summary, None if it has none."""

    table: str
    table_uuid: str
    snapshot_id: int
    parent_id: int
    batch_id: str | None
    stored: Fingerprint | None
    maintainer: str = ""


@dataclass(frozen=True, slots=True)
class Side:
    """The visible or the deleted rows of one snapshot, in the data files that its readers read
    differently from those of the other snapshot. `delete_files` is the number of delete files that apply
    to these."""

    data_files: int
    delete_files: int
    fingerprint: Fingerprint


@dataclass(frozen=True, slots=True)
class DifferentRow:
    """A row that one snapshot shows `count` times more often than the other. `row` is its columns as JSON, `file` the data
    file that has it. `is_lost`: the earlier snapshot shows it more often."""

    row: str
    file: str
    count: int
    is_lost: bool


@dataclass(frozen=True, slots=True)
class Difference:
    """The numbers of rows that a commit lost, and that it brought back or doubled, with some of them."""

    lost: int
    gained: int
    sample: tuple[DifferentRow, ...] = ()

    def text(self) -> str:
        """Both numbers as a clause."""
        return f"{self.lost:,} rows lost, {self.gained:,} brought back or doubled"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Both sides, read from the files. The stored fingerprint is compared with `added`, the contents of
    the commit's own files, or if that is None with the side after. `incomparable` says why it cannot be
    compared, None if it can. `where` names the first data file that differs, `difference` the rows that differ."""

    before: Side
    after: Side
    incomparable: str | None = None
    compared: Compared = Compared.ROWS
    added: Fingerprint | None = None
    where: str = ""
    difference: Difference | None = None


@dataclass(frozen=True, slots=True)
class Verification:
    """The verdict on one snapshot, with the evidence. `detail` is one sentence for people. `facts` of metadata contradict
    the claim, `hazards` made a change of rows likely. `file_bytes` is the size of the files that a proof reads."""

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
    maintainer: str = ""
    difference: Difference | None = None
    facts: tuple[str, ...] = ()
    hazards: tuple[str, ...] = ()
    file_bytes: int = 0

    @property
    def is_proved_from_files(self) -> bool:
        """Whether the files have shown that every row is kept, and not the metadata alone."""
        return self.status is VerificationStatus.ATTESTED and self.after is not None


def find_commit(state: TableState, snapshot_id: int) -> MaintenanceCommit | Verification:
    """Returns the commit of this retained snapshot. Returns a verdict if there is none, if it claims nothing, or if its
    parent is not retained."""
    table = str(state.table)
    snapshot = state.snapshot_by_id(snapshot_id)
    if snapshot is None:
        why = f"snapshot {snapshot_id} is not retained: it expired or never existed"
        return Verification(VerificationStatus.UNPROVABLE, table, snapshot_id, why)
    maintainer = writer_name(snapshot.summary, state.location)
    if not is_maintenance(snapshot):
        return Verification(
            VerificationStatus.NO_CLAIM,
            table,
            snapshot_id,
            f"snapshot {snapshot_id} ({snapshot.operation or 'no operation'}) does not claim to change no row",
            snapshot.parent_id,
            maintainer=maintainer,
        )
    batch = snapshot.summary.get(BATCH_PROPERTY) if TOKEN_PROPERTY in snapshot.summary else None
    parent = None if snapshot.parent_id is None else state.snapshot_by_id(snapshot.parent_id)
    if parent is None:
        return Verification(
            VerificationStatus.UNPROVABLE,
            table,
            snapshot_id,
            f"snapshot {snapshot_id} names no parent"
            if snapshot.parent_id is None
            else f"parent {snapshot.parent_id} of snapshot {snapshot_id} has been expired",
            snapshot.parent_id,
            batch,
            maintainer=maintainer,
        )
    stored = _stored(snapshot.summary.get(PROOF_PROPERTY)) if TOKEN_PROPERTY in snapshot.summary else None
    return MaintenanceCommit(table, state.uuid, snapshot_id, parent.snapshot_id, batch, stored, maintainer)


def _stored(text: str | None) -> Fingerprint | None:
    """Reads the stored fingerprint. A text that cannot be read proves nothing, and does not prevent a new
    proof."""
    try:
        proof = None if text is None else from_data(Proof, json.loads(text))
        return None if proof is None or proof.fingerprint is None else Fingerprint.parse(proof.fingerprint)
    except ValueError:
        return None


def judge_commit(commit: MaintenanceCommit, evidence: Evidence) -> Verification:
    """Returns ATTESTED if both sides are equal and the commit's files still have the fingerprint of that
    time, as far as it can be compared; else RED."""
    before, after = evidence.before.fingerprint, evidence.after.fingerprint
    stored, stored_detail = _judge_stored(commit, evidence)
    if before != after:
        place = f", first in {evidence.where}" if evidence.where else ""
        detail = f"{evidence.compared} before {before.text()} differ from those after {after.text()}{place}"
        if evidence.difference is not None:
            detail = f"{evidence.difference.text()}: {detail}"
    elif stored is StoredProof.DIFFERENT:
        detail = f"{after.text()} before and after, which is not the fingerprint that the commit proved"
    elif evidence.before.data_files == evidence.after.data_files == 0:
        detail = "readers of both snapshots read the same data files with the same deletes"
    else:
        detail = f"the same {after.rows:,} {evidence.compared} before and after"
    same = before == after and stored is not StoredProof.DIFFERENT
    return Verification(
        VerificationStatus.ATTESTED if same else VerificationStatus.RED,
        commit.table,
        commit.snapshot_id,
        detail if commit.batch_id is None else f"{detail}; {stored_detail}",
        commit.parent_id,
        commit.batch_id,
        evidence.before,
        evidence.after,
        stored,
        evidence.compared,
        commit.maintainer,
        evidence.difference,
    )


def _judge_stored(commit: MaintenanceCommit, evidence: Evidence) -> tuple[StoredProof, str]:
    fingerprint = evidence.after.fingerprint if evidence.added is None else evidence.added
    incomparable = evidence.incomparable
    if incomparable is None and commit.stored is None:
        incomparable = "the commit stored no fingerprint"
    if (
        incomparable is None
        and commit.stored is not None
        and commit.stored.algorithm != fingerprint.algorithm
    ):
        incomparable = f"it uses the algorithm {commit.stored.algorithm}"
    if incomparable is not None:
        why = f"the fingerprint stored with the commit cannot be compared: {incomparable}"
        return StoredProof.NOT_COMPARABLE, why
    if commit.stored == fingerprint:
        return StoredProof.EQUAL, "it equals the fingerprint stored with the commit"
    stored = "" if commit.stored is None else commit.stored.text()
    return StoredProof.DIFFERENT, f"the fingerprint stored with the commit is {stored}"


def unprovable(commit: MaintenanceCommit, why: str) -> Verification:
    """Returns the verdict if the files to compare no longer exist, or Spark cannot read them."""
    return Verification(
        VerificationStatus.UNPROVABLE,
        commit.table,
        commit.snapshot_id,
        why,
        commit.parent_id,
        commit.batch_id,
        maintainer=commit.maintainer,
    )
