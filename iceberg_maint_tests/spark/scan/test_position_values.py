"""Positions as values: the bytes of a deletion vector and the fingerprint, without a JVM."""

from __future__ import annotations

import hashlib

import pytest
from pyroaring import BitMap64

from iceberg_maint.engines.spark.scan import positions

SOME = BitMap64([0, 7, (1 << 33) + 1])


def test_parse_returns_the_positions_of_a_blob() -> None:
    assert positions.parse(positions.blob(SOME)) == SOME


@pytest.mark.parametrize(
    ("at", "message"),
    [(3, "no deletion vector"), (4, "no deletion vector"), (12, "checksum"), (-1, "checksum")],
)
def test_parse_refuses_a_blob_with_a_changed_byte(at: int, message: str) -> None:
    content = bytearray(positions.blob(SOME))
    content[at] ^= 1
    with pytest.raises(ValueError, match=message):
        positions.parse(bytes(content))


def test_fingerprint_is_the_sum_of_the_digests_of_path_and_positions() -> None:
    digest = hashlib.sha256(b"file:/a\0" + b"".join(p.to_bytes(8, "little") for p in SOME)).digest()
    words = [int.from_bytes(digest[at : at + 8], "big") for at in (0, 8, 16, 24)]
    one = positions.fingerprint({"file:/a": SOME})
    assert (one.rows, one.lanes) == (3, ((words[0], words[1]), (words[2], words[3])))
    other = positions.fingerprint({"file:/b": SOME})
    assert other.lanes != one.lanes
    both = positions.fingerprint({"file:/a": SOME, "file:/b": SOME})
    assert both.lanes == tuple(
        tuple((a + b) % (1 << 64) for a, b in zip(*lanes, strict=True))
        for lanes in zip(one.lanes, other.lanes, strict=True)
    )
