"""Where a run is killed, how, and on which kind of table: the grid of cases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from iceberg_maint.core.model.ids import Operation


class Mode(StrEnum):
    """What happens at the point. `LOST`: what was asked for is done, and its answer never comes."""

    PYTHON = "SIGKILL of Python"
    JVM = "SIGKILL of the JVM"
    LOST = "lost answer"
    SIGTERM = "SIGTERM"


SIGKILLS = (Mode.PYTHON, Mode.JVM)


class Seam(StrEnum):
    """A moment in a run that the seams of the product show to who wraps them."""

    LOCKED = "lease taken"
    PLANNED = "plan saved"
    WRITING = "a file is being written"
    WRITTEN = "files written and proved"
    INTENDED = "intent saved"
    MANIFESTED = "manifests written, rules looked at"
    TRIED = "try saved, swap not asked for"
    SWAPPED = "swapped, not answered"
    ANSWERED = "commit answered"
    OUTCOME = "outcome written, not committed"
    FINISHING = "outcome known, not written"
    FINISHED = "outcome and cursor saved"
    ABORTING = "failed batch, its outcome not written"
    BETWEEN = "between two operations"
    LISTED = "files listed"
    MARKED = "trash manifest written"
    HALF_MOVED = "some files moved to the trash"
    MOVED = "files moved, outcome not written"


REWRITE = (Operation.REWRITE_DATA_FILES,)
CLEAN = (Operation.CONVERT_EQUALITY_DELETES, Operation.REWRITE_DATA_FILES)
MERGE = (Operation.REWRITE_POSITION_DELETE_FILES,)
REGROUP = (Operation.REWRITE_MANIFESTS,)
EXPIRE = (Operation.EXPIRE_SNAPSHOTS,)
ORPHANS = (Operation.REMOVE_ORPHAN_FILES,)


class Kind(StrEnum):
    """The tables. The first four are the grid's; the last has its equality deletes applied by rewriting."""

    UNPARTITIONED = "v2_unpartitioned"
    EVOLVED = "v2_evolved"
    EQUALITY = "v2_equality"
    VECTORS = "v3_vectors"
    ANTI_JOIN = "v2_anti_join"


GRID_KINDS = (Kind.UNPARTITIONED, Kind.EVOLVED, Kind.EQUALITY, Kind.VECTORS)
_WITH_POSITION_DELETES = (Kind.UNPARTITIONED, Kind.EVOLVED)


@dataclass(frozen=True, slots=True)
class Point:
    """A seam of one operation; `operations` None: what cleans the kind's data."""

    code: str
    seam: Seam
    operations: tuple[Operation, ...] | None
    kinds: tuple[Kind, ...] = GRID_KINDS

    def asked(self, kind: Kind) -> tuple[Operation, ...]:
        """The operations a run is asked for."""
        if self.operations is not None:
            return self.operations
        equality = kind in (Kind.EQUALITY, Kind.ANTI_JOIN)
        if self.seam is Seam.BETWEEN:
            return CLEAN if equality else (*REWRITE, *REGROUP)
        return CLEAN if equality else REWRITE

    def time(self, kind: Kind) -> int:
        """How often the seam is passed before: the evolved table's second batch, when one is done."""
        in_batch = self.operations is None and self.seam not in (Seam.LOCKED, Seam.PLANNED, Seam.BETWEEN)
        return 2 if kind is Kind.EVOLVED and in_batch else 1


_ALL_KINDS = (*GRID_KINDS, Kind.ANTI_JOIN)

POINTS = (
    Point("K1", Seam.LOCKED, None),
    Point("K2", Seam.PLANNED, None),
    Point("K3", Seam.WRITING, None, _ALL_KINDS),
    Point("K4", Seam.WRITTEN, None, _ALL_KINDS),
    Point("K5", Seam.INTENDED, None, _ALL_KINDS),
    Point("K6", Seam.MANIFESTED, None, _ALL_KINDS),
    Point("K7", Seam.TRIED, None, _ALL_KINDS),
    Point("K8", Seam.SWAPPED, None, _ALL_KINDS),
    Point("K9", Seam.ANSWERED, None, _ALL_KINDS),
    Point("K10", Seam.OUTCOME, None, _ALL_KINDS),
    Point("K11", Seam.FINISHED, None, _ALL_KINDS),
    Point("K12", Seam.ABORTING, None, _ALL_KINDS),
    Point("K13", Seam.BETWEEN, None),
    Point("X1", Seam.PLANNED, EXPIRE),
    Point("X2", Seam.TRIED, EXPIRE),
    Point("X3", Seam.SWAPPED, EXPIRE),
    Point("X4", Seam.OUTCOME, EXPIRE),
    Point("O1", Seam.LISTED, ORPHANS),
    Point("O2", Seam.MARKED, ORPHANS),
    Point("O3", Seam.HALF_MOVED, ORPHANS),
    Point("O4", Seam.MOVED, ORPHANS),
    Point("M1", Seam.MANIFESTED, REGROUP),
    Point("M2", Seam.TRIED, REGROUP),
    Point("M3", Seam.SWAPPED, REGROUP),
    Point("P1", Seam.WRITTEN, MERGE, _WITH_POSITION_DELETES),
    Point("P2", Seam.TRIED, MERGE, _WITH_POSITION_DELETES),
    Point("P3", Seam.SWAPPED, MERGE, _WITH_POSITION_DELETES),
)
"""K: rewriting and converting, X: expiry, O: orphan files, M: manifests, P: merging position deletes."""

ZOMBIE_SEAMS = (
    Seam.LOCKED,
    Seam.PLANNED,
    Seam.WRITTEN,
    Seam.INTENDED,
    Seam.MANIFESTED,
    Seam.TRIED,
    Seam.SWAPPED,
    Seam.ANSWERED,
    Seam.FINISHING,
    Seam.FINISHED,
)
ZOMBIE_POINTS = tuple(
    Point(f"Z{number}", seam, None, _ALL_KINDS) for number, seam in enumerate(ZOMBIE_SEAMS, start=1)
)
"""Where a process is stopped for longer than its lease lasts, on each of the five tables."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run that is killed."""

    point: Point
    mode: Mode
    kind: Kind

    @property
    def name(self) -> str:
        return f"{self.point.code} {self.mode.name} {self.kind}"


def cases() -> Iterator[Case]:
    """All of them, every mode and kind early: a suite that is cut off has seen something of each."""
    for number in range(len(Mode)):
        for place, point in enumerate(POINTS):
            mode = list(Mode)[(number + place) % len(Mode)]
            for kind in point.kinds:
                yield Case(point, mode, kind)
