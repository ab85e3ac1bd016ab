"""Fingerprints: their sum, their text, and what is no fingerprint."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_maint.core.outcomes.verification import FINGERPRINT_ALGORITHM, Fingerprint

words = st.integers(0, 2**64 - 1)
fingerprints = st.builds(
    Fingerprint, st.integers(0, 2**63), st.tuples(st.tuples(words, words), st.tuples(words, words))
)


@given(found=fingerprints)
def test_text_comes_back(found: Fingerprint) -> None:
    assert Fingerprint.parse(found.text()) == found


@given(a=fingerprints, b=fingerprints, c=fingerprints)
def test_sum_is_commutative_and_associative(a: Fingerprint, b: Fingerprint, c: Fingerprint) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)


def test_sum_wraps_at_64_bits() -> None:
    top = Fingerprint(1, ((2**64 - 1, 5),))
    assert top + top == Fingerprint(2, ((2**64 - 2, 10),))


def test_text_reads_as_documented() -> None:
    assert Fingerprint(3, ((10, 255), (0, 1))).text() == f"{FINGERPRINT_ALGORITHM}:3:a.ff,0.1"


def test_sum_of_other_algorithms_or_lanes_is_refused() -> None:
    with pytest.raises(ValueError, match="different algorithms"):
        Fingerprint(1, ((1, 1),)) + Fingerprint(1, ((1, 1),), "other")
    with pytest.raises(ValueError, match="different algorithms"):
        Fingerprint(1, ((1, 1),)) + Fingerprint(1, ((1, 1), (1, 1)))


@pytest.mark.parametrize(
    "text",
    ["", "a", "a:1", "a:x:1.1", "a:1:1", "a:1:1.1.1", "a:1:", "a:01:1.1", "a:1:0x1.1", "a:1:A.1", "a:1: 1.1"],
)
def test_other_text_is_no_fingerprint(text: str) -> None:
    with pytest.raises(ValueError):
        Fingerprint.parse(text)
