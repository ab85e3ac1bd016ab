"""Attests the commits of a table that claim to change no row, of whatever tool: from metadata, then from the files.

Nothing here writes to the table. What is read is bounded, and each verdict is stored before the next commit is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from iceberg_maint.core.commits.attestation import Judgement, MetadataVerdict, Side, judge_metadata
from iceberg_maint.core.commits.change import LiveEntry
from iceberg_maint.core.commits.verdict import judge_by_metadata, with_metadata
from iceberg_maint.core.decisions.history import PartitionHistory
from iceberg_maint.core.model.ids import VERIFYING, WHOLE_TABLE, command_line
from iceberg_maint.core.model.table_state import Manifest, Snapshot, TableState
from iceberg_maint.core.outcomes.attestation import Attestation, claims_since
from iceberg_maint.core.outcomes.verification import (
    MaintenanceCommit,
    Verification,
    VerificationStatus,
    find_commit,
    unprovable,
)
from iceberg_maint.core.policy.housekeeping import AttestLevel, AttestPolicy
from iceberg_maint.errors import IcebergMaintError, RefusedError, UnknownTableError
from iceberg_maint.loop.context import Context
from iceberg_maint.ports.engine import Verifier

_OF_THE_COMMIT = frozenset({"ICM-101", "ICM-124"})
"""Codes of a proof that fails by the files of one commit. Others fail every proof."""
_MOST_COMMITS = 50
"""Commits that an observation or a run of Dagster judges at most."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What an attestation reads: files too, or only metadata, at most so many bytes and commits (None: no limit). Without
    `ends_at_files` a commit that metadata leaves open is CONSISTENT or UNPROVABLE; with it, it waits for the next
    attestation that reads files."""

    files: bool
    max_bytes: int | None
    ends_at_files: bool = False
    max_commits: int | None = None


@dataclass(frozen=True, slots=True)
class Attested:
    """The verdicts of one attestation, oldest first, how far the table is attested after it, and the state that it read."""

    state: TableState
    verdicts: tuple[Verification, ...]
    attestation: Attestation | None


def attest_table(state: TableState, context: Context, extent: Extent, *, history: bool = True) -> Attested:
    """Judges the commits of main since the cursor, and stores each verdict. Without a cursor, all retained ones; without
    `history` the newest one. With files, first the commits before the cursor that only metadata attested.

    Raises what the catalog and the verifier raise, but for files of one commit that are missing, damaged or too large.
    """
    stored = context.ledger.attestations.get(state.uuid)
    head = state.snapshot
    unread = stored.of_main(state).unread if stored is not None and extent.files else ()
    if head is None or (stored is not None and stored.snapshot_id == head.snapshot_id and not unread):
        return Attested(state, (), stored)
    claims = claims_since(state, stored)
    if stored is None and not history:
        claims = claims[-1:]
    proof = _Proof(state, context, extent)
    at = replace(stored or _before(state, claims, head), pending=0).of_main(state)
    verdicts: list[Verification] = []
    later = {s.snapshot_id: s for s in claims}
    for number, snapshot_id in enumerate((*unread, *later)):
        verdict = None if number == extent.max_commits else proof.judge(snapshot_id)
        if verdict is None:
            at = replace(at, pending=min(len(later), len(unread) + len(later) - number))
            break
        verdicts.append(verdict)
        at = at.with_verdict(verdict)
        if snapshot_id in later:
            at = at.at(later[snapshot_id])
        context.ledger.attestations.put(state.uuid, at)
    else:
        at = at.at(head)
    context.ledger.attestations.put(state.uuid, at)
    _store_fault(state, at, proof.damage, verdicts, context)
    return Attested(state, tuple(verdicts), at)


def attest_by_policy(state: TableState, policy: AttestPolicy, context: Context, *, files: bool) -> Attested:
    """Judges new commits as the policy says. Without `files` a commit that the policy proves from files waits. Raises what
    `attest_table` raises."""
    level = policy.level
    if level is AttestLevel.OFF:
        return Attested(state, (), None)
    extent = Extent(
        files and level is AttestLevel.FILES,
        policy.max_bytes,
        ends_at_files=level is AttestLevel.FILES,
        max_commits=_MOST_COMMITS,
    )
    return attest_table(state, context, extent, history=False)


def attest_snapshot(state: TableState, snapshot_id: int, context: Context, extent: Extent) -> Attested:
    """Judges one retained snapshot of any branch again. Moves no cursor; an earlier verdict on the snapshot ends as
    `Attestation.with_verdict` says. Raises what `attest_table` raises, and RefusedError ICM-101 and ICM-124 for its files."""
    proof = _Proof(state, context, extent, again=True)
    try:
        verdict = proof.judge(snapshot_id)
    except RefusedError as why:
        if why.code == "ICM-101":
            _keep(state, context, context.process.masked(str(why)))
        raise
    assert verdict is not None, "only a table ends at its files"
    stored = context.ledger.attestations.get(state.uuid)
    if stored is not None and verdict.snapshot_id in {s.snapshot_id for s in state.ancestors()}:
        stored = stored.with_verdict(verdict)
        context.ledger.attestations.put(state.uuid, stored)
    if stored is not None or verdict.status is VerificationStatus.ATTESTED:
        _store_fault(state, stored or Attestation(0, 0), "", (verdict,), context)
    return Attested(state, (verdict,), stored)


def accept(state: TableState, snapshot_id: int, context: Context) -> Attestation:
    """Ends the open verdict on a snapshot: a person has dealt with it. Raises UnknownTableError ICM-126 if there is none."""
    stored = context.ledger.attestations.get(state.uuid)
    if stored is None or snapshot_id not in {v.snapshot_id for v in stored.open}:
        raise UnknownTableError(
            "ICM-126",
            f"{state.table} has no open verdict on snapshot {snapshot_id}.",
            f"see `{command_line('attest', str(state.table))}`.",
        )
    at = stored.accept(snapshot_id).of_main(state)
    context.ledger.attestations.put(state.uuid, at)
    _keep(state, context, _red_text(state, at))
    return at


def _before(state: TableState, claims: Sequence[Snapshot], head: Snapshot) -> Attestation:
    """The attestation of a table whose first claim is not judged yet."""
    first = claims[0] if claims else head
    parent = None if first.parent_id is None else state.snapshot_by_id(first.parent_id)
    start = first if parent is None else parent
    return Attestation(start.snapshot_id, start.sequence_number)


def _store_fault(
    state: TableState, at: Attestation, damage: str, verdicts: Sequence[Verification], context: Context
) -> None:
    """Stores what the verdict on the table shows: the newest red commit, else a damaged file. A proof that succeeds ends
    the latter."""
    text = _red_text(state, at) or damage
    if text or any(v.status is VerificationStatus.ATTESTED for v in verdicts):
        _keep(state, context, text)


def _red_text(state: TableState, at: Attestation) -> str:
    if not at.red:
        return ""
    newest = at.red[-1]
    others = f" {len(at.red) - 1} more commits are red." if len(at.red) > 1 else ""
    return str(
        IcebergMaintError(
            "ICM-185",
            f"{state.table}: snapshot {newest.snapshot_id} by {newest.maintainer} claims to change no row: "
            f"{newest.detail}.{others}",
            f"stop that maintainer, see the rows and the plan of the roll-back with "
            f"`{command_line('attest', str(state.table), '--snapshot', str(newest.snapshot_id))}`, and end this with "
            f"`{command_line('attest', str(state.table), '--accept', str(newest.snapshot_id))}`.",
        )
    )


def _keep(state: TableState, context: Context, text: str) -> None:
    finding = PartitionHistory(reason=context.process.masked(text))
    context.ledger.health.set_partition_history(state.uuid, VERIFYING, {WHOLE_TABLE: finding})


@dataclass(slots=True)
class _Proof:
    """The proofs of one attestation. `again`: a commit that metadata proves is read too, and its errors are raised."""

    state: TableState
    context: Context
    extent: Extent
    again: bool = False
    damage: str = ""
    _judged: int = 0
    _read_bytes: int = 0
    _lists: dict[int, Sequence[Manifest]] = field(default_factory=dict)
    _verifier: Verifier | None = None

    def judge(self, snapshot_id: int) -> Verification | None:
        """Returns the verdict on a commit; None if it waits for the next attestation."""
        commit = find_commit(self.state, snapshot_id)
        if isinstance(commit, Verification):
            return commit
        limit = self.extent.max_bytes
        if limit is not None and self._read_bytes >= limit:
            return None
        self._judged += 1
        try:
            metadata = self._of_metadata(commit)
            verdict = judge_by_metadata(commit, metadata, reads_files=self.extent.files)
            if metadata.judgement is Judgement.PROVED and not (self.again and self.extent.files):
                return verdict
            if not self.extent.files:
                waits = metadata.judgement is Judgement.OPEN and self.extent.ends_at_files
                return None if waits else verdict
            if limit is not None and self._read_bytes + metadata.file_bytes > limit:
                return self._above_limit(verdict, limit)
            self._read_bytes += metadata.file_bytes
            return self._of_files(commit, verdict)
        except RefusedError as why:
            if self.again or why.code not in _OF_THE_COMMIT:
                raise
            if why.code == "ICM-101":
                self.damage = str(why)
            return unprovable(commit, str(why))

    def _of_files(self, commit: MaintenanceCommit, by_metadata: Verification) -> Verification:
        if self._verifier is None:
            self._verifier = self.context.engine.spark.verifier()
        try:
            return with_metadata(self._verifier.verify(commit), by_metadata)
        except RefusedError as why:
            if not by_metadata.facts or why.code not in _OF_THE_COMMIT:
                raise
            return replace(by_metadata, detail=f"{by_metadata.detail}; its files cannot be compared: {why}")

    def _above_limit(self, verdict: Verification, limit: int) -> Verification | None:
        """A commit that the next attestation reads, or none can. What metadata refutes needs no files."""
        if verdict.facts:
            return verdict
        if self._judged > 1:
            return None
        why = f"a proof reads {verdict.file_bytes:,} bytes of files, and attest.max_bytes is {limit:,}"
        return replace(verdict, status=VerificationStatus.UNPROVABLE, detail=f"{verdict.detail}; {why}")

    def _of_metadata(self, commit: MaintenanceCommit) -> MetadataVerdict:
        unpartitioned = frozenset(s.spec_id for s in self.state.specs.values() if s.is_unpartitioned)
        before, after = (self._side(number) for number in (commit.parent_id, commit.snapshot_id))
        return judge_metadata(before, after, unpartitioned, self.state.key_types, self._entries)

    def _side(self, snapshot_id: int) -> Side:
        snapshot = self.state.snapshot_by_id(snapshot_id)
        assert snapshot is not None, "both snapshots of a commit are retained"
        if snapshot_id not in self._lists:
            # The next commit begins with the manifests of this one.
            self._lists = dict(list(self._lists.items())[-1:])
            catalog = self.context.catalogs.of(self.state.table)
            self._lists[snapshot_id] = self.context.catalogs.in_time(
                self.state.table, lambda: catalog.manifests(self.state, snapshot)
            )
        return Side(self._lists[snapshot_id], snapshot.sequence_number)

    def _entries(self, manifest: Manifest) -> Sequence[LiveEntry]:
        self._read_bytes += manifest.length_bytes
        catalogs, table = self.context.catalogs, self.state.table
        return catalogs.interruptible(table, lambda: catalogs.of(table).live_entries(self.state, manifest))
