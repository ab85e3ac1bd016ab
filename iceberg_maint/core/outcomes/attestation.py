"""How far the commits of a table that claim to change no row are attested."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from iceberg_maint.core.model.other_writers import is_maintenance
from iceberg_maint.core.model.table_state import Snapshot, TableState
from iceberg_maint.core.outcomes.verification import Verification, VerificationStatus

MOST_OPEN = 20
"""The most verdicts that wait for a person and are kept, the newest."""
MOST_ORDERED = 100
"""The most commits by statements of this program that are kept, the newest."""
MOST_UNREAD = 1_000
"""The most commits that only metadata attested and are kept, the newest."""


@dataclass(frozen=True, slots=True)
class OpenVerdict:
    """A RED or UNPROVABLE verdict of main that no person has accepted."""

    snapshot_id: int
    status: VerificationStatus
    maintainer: str
    detail: str


@dataclass(frozen=True, slots=True)
class Attestation:
    """How far the commits of a table's main are attested: all up to this snapshot have a verdict. `pending` commits after
    it wait for a proof from files. `judged` counts the verdicts since the first, `open` are those that wait for a person. `unread` are
    the snapshots that only metadata attested: an attestation that reads files proves them first. `ordered` are snapshots that
    engines elsewhere committed by statements of this program, `accepted` those whose verdict a person ended."""

    snapshot_id: int
    sequence_number: int
    judged: int = 0
    pending: int = 0
    open: tuple[OpenVerdict, ...] = ()
    unread: tuple[int, ...] = ()
    ordered: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()

    @property
    def red(self) -> tuple[OpenVerdict, ...]:
        """The open verdicts that rows were lost or brought back."""
        return tuple(v for v in self.open if v.status is VerificationStatus.RED)

    def at(self, snapshot: Snapshot) -> Attestation:
        """Returns the attestation with the cursor at this snapshot."""
        return replace(self, snapshot_id=snapshot.snapshot_id, sequence_number=snapshot.sequence_number)

    def with_ordered(self, snapshot_ids: Iterable[int]) -> Attestation:
        """Returns the attestation with these snapshots as ordered by this program."""
        return replace(self, ordered=(*self.ordered, *snapshot_ids)[-MOST_ORDERED:])

    def with_verdict(self, verdict: Verification) -> Attestation:
        """Returns the attestation with this verdict on a snapshot in place of an earlier one. Of a RED one only another RED or a
        proof from the files takes the place: without them the same commit cannot be cleared."""
        assert verdict.snapshot_id is not None
        is_red = verdict.snapshot_id in {v.snapshot_id for v in self.red}
        if is_red and verdict.status is not VerificationStatus.RED and not verdict.is_proved_from_files:
            return replace(self, judged=self.judged + 1)
        unread = [s for s in self.unread if s != verdict.snapshot_id]
        if verdict.status is VerificationStatus.CONSISTENT:
            unread.append(verdict.snapshot_id)
        at = replace(
            self.without(verdict.snapshot_id), judged=self.judged + 1, unread=tuple(unread[-MOST_UNREAD:])
        )
        if verdict.status not in (VerificationStatus.RED, VerificationStatus.UNPROVABLE):
            return at
        new = OpenVerdict(verdict.snapshot_id, verdict.status, verdict.maintainer, verdict.detail)
        return replace(at, open=(*at.open, new)[-MOST_OPEN:])

    def without(self, snapshot_id: int) -> Attestation:
        """Returns the attestation without an open verdict on this snapshot."""
        return replace(self, open=tuple(v for v in self.open if v.snapshot_id != snapshot_id))

    def accept(self, snapshot_id: int) -> Attestation:
        """Returns the attestation in which a person has ended the open verdict on this snapshot."""
        accepted = (*self.accepted, snapshot_id)[-MOST_OPEN:]
        return replace(self.without(snapshot_id), accepted=accepted)

    def of_main(self, state: TableState) -> Attestation:
        """Returns the attestation without verdicts on retained snapshots that main no longer has, which were rolled back, and
        without unread snapshots that nothing can prove any more: main does not have them, or their parent has expired."""
        retained = {s.snapshot_id for s in state.snapshots}
        on_main = {s.snapshot_id for s in state.ancestors()}
        provable = {s.snapshot_id for s in state.ancestors() if s.parent_id in retained}
        gone = retained - on_main
        return replace(
            self,
            open=tuple(v for v in self.open if v.snapshot_id not in gone),
            unread=tuple(s for s in self.unread if s in provable),
        )


def claims_since(state: TableState, attested: Attestation | None) -> tuple[Snapshot, ...]:
    """Returns the snapshots of main that claim to change no row, oldest first: those after the cursor. Without a cursor, and
    if main no longer has its snapshot, all whose parent is retained: a branch that main became has lower sequence numbers,
    and format v1 has none. With a cursor also later ones that nothing can prove, without those that a person accepted."""
    retained = {s.snapshot_id for s in state.snapshots}
    chain = state.ancestors()
    if attested is None:
        return tuple(s for s in reversed(chain) if is_maintenance(s) and s.parent_id in retained)
    place = next((n for n, s in enumerate(chain) if s.snapshot_id == attested.snapshot_id), None)
    later = chain[:place] if place is not None else chain
    return tuple(
        s
        for s in reversed(later)
        if is_maintenance(s)
        and s.snapshot_id not in attested.accepted
        and (place is not None or s.parent_id in retained or s.sequence_number > attested.sequence_number)
    )
