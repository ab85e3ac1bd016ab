"""Proof: evidence that the rows written are the rows read."""

from __future__ import annotations

from dataclasses import dataclass

FINGERPRINT_ALGORITHM = "xxh64x2-1"
"""Row = xxhash64(XOR over columns j of xxhash64(j, value)), two lanes; table = row count and the
sums of the low and high 32 bits. Stored with every fingerprint; a new definition gets a new id."""

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Order-independent fingerprint of a multiset of rows; fingerprints of disjoint parts add up.

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
        """`algorithm:rows:lane,lane` in hexadecimal, for snapshot summaries."""
        lanes = ",".join(f"{lo:x}.{hi:x}" for lo, hi in self.lanes)
        return f"{self.algorithm}:{self.rows}:{lanes}"

    @classmethod
    def parse(cls, text: str) -> Fingerprint:
        """Reads what `text` wrote; raises ValueError for anything else."""
        algorithm, rows, lanes = text.split(":")
        pairs = []
        for lane in lanes.split(","):
            low, high = lane.split(".")
            pairs.append((int(low, 16), int(high, 16)))
        found = cls(int(rows), tuple(pairs), algorithm)
        if found.text() != text:
            raise ValueError(f"'{text}' is no fingerprint")
        return found


@dataclass(frozen=True, slots=True)
class Proof:
    """What was compared. `equal` is the verdict; `detail` names the first difference.

    `removed_records` are rows dropped by deletes: kept + removed = read.
    """

    level: str
    equal: bool
    input_records: int
    output_records: int
    removed_records: int
    fingerprint: str | None = None
    detail: str = ""
