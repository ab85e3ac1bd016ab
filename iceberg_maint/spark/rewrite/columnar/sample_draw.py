"""Draws the sample of a batch: numbers that follow from the batch's id, so that each attempt draws the same."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any


class Draw:
    """The draws of one batch."""

    def __init__(self, batch_id: str) -> None:
        self._batch_id = batch_id

    def below(self, what: str, limit: int) -> int:
        """A number in [0, limit)."""
        digest = hashlib.sha256(f"{what} of {self._batch_id}".encode()).digest()
        return int.from_bytes(digest[:8], "big") * limit >> 64

    def falls_in(self, share: float) -> bool:
        """Whether the batch belongs to this share of all batches. Share 0 has none, 1 has all."""
        return self.below("batch", 1 << 32) < share * (1 << 32)

    def columns(self, sizes: Mapping[int, int], most: int, most_bytes: int) -> tuple[int, ...]:
        """Up to `most` columns, in the order of `sizes` (bytes by field id), that have up to `most_bytes` together. All
        if they fit. A column that does not fit beside those drawn before it is left out."""
        taken: set[int] = set()
        for field_id in sorted(sizes, key=lambda i: self.below(f"column {i}", 1 << 64)):
            if len(taken) < most and sizes[field_id] <= most_bytes:
                taken.add(field_id)
                most_bytes -= sizes[field_id]
        return tuple(i for i in sizes if i in taken)


def place_of(counts: Sequence[int], row: int) -> tuple[int, int]:
    """The number of the file that has this row of all files, and the rows of the file before it. `counts` are the rows of
    each file. Raises ValueError if there is no such row."""
    for number, count in enumerate(counts):
        if row < count:
            return number, row
        row -= count
    raise ValueError(f"the files have {sum(counts)} rows, none has number {row + sum(counts)}")


def column_bytes(
    fields: Sequence[Mapping[str, Any]], lineage: Collection[int], leaf_bytes: Mapping[int, int], scale: float
) -> dict[int, int]:
    """The bytes of each top-level column and lineage column by field id: those of its leaves, times `scale`. A column
    without stated bytes has the average of the others. `fields` are those of a schema's JSON."""
    stated = {f["id"]: [leaf_bytes[i] for i in _ids(f) if i in leaf_bytes] for f in fields}
    stated |= {i: [leaf_bytes[i]] if i in leaf_bytes else [] for i in lineage}
    known = [sum(sizes) for sizes in stated.values() if sizes]
    average = sum(known) // len(known) if known else 0
    return {i: int((sum(sizes) if sizes else average) * scale) for i, sizes in stated.items()}


def _ids(field: Mapping[str, Any]) -> list[int]:
    """The id of a field and those below it, from a schema's JSON."""
    return [field["id"], *_ids_of_type(field["type"])]


def _ids_of_type(kind: Any) -> list[int]:
    if isinstance(kind, str):
        return []
    if kind["type"] == "struct":
        return [i for f in kind["fields"] for i in _ids(f)]
    parts = ("element",) if kind["type"] == "list" else ("key", "value")
    return [i for p in parts for i in (kind[f"{p}-id"], *_ids_of_type(kind[p]))]
