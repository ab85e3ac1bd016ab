"""Proof: evidence that the rows written are the rows read."""

from __future__ import annotations

from dataclasses import dataclass

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
