"""Digests of live entries: the same for the same entries in any order, and for no others."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_maint.core.commits.change import LiveEntry
from iceberg_maint.core.commits.manifest_rules import EntriesDigest, digest_entries, planned_entries
from iceberg_maint.core.model.table_state import FileKind
from iceberg_maint_tests.support.examples import examples

pytestmark = pytest.mark.slow

OLD = LiveEntry("old", None, FileKind.DATA, ("a",), 1, 1, 11, None, 10, 1000, None)
NEW = OLD._replace(path="new", first_row_id=40)
VECTOR = OLD._replace(path="v", kind=FileKind.DELETION_VECTOR, content_offset=4, referenced_data_file="old")

_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.text("a'\\", max_size=2),
    st.binary(max_size=1),
    st.sampled_from([Decimal("1.0"), Decimal("1.00"), UUID(int=1)]),
)
ENTRIES = st.builds(
    LiveEntry,
    st.text("ab',\ud800", max_size=3),
    st.none() | st.integers(0, 1),
    st.sampled_from(FileKind),
    st.tuples(_VALUES) | st.tuples(_VALUES, _VALUES),
    *(st.integers(0, 1) for _ in range(3)),
    st.none() | st.integers(0, 1),
    *(st.integers(0, 1) for _ in range(2)),
    st.none() | st.sampled_from(["a", "b"]),
)


def exact(entries: list[LiveEntry]) -> Counter[str]:
    """Equal values of other types are other values in a manifest: 1 is not true, 1.0 is not 1.00."""
    return Counter(map(repr, entries))


@settings(max_examples=examples(100))
@given(st.lists(ENTRIES, max_size=4), st.lists(ENTRIES, max_size=4))
def test_digests_are_equal_where_the_entries_are(one: list[LiveEntry], other: list[LiveEntry]) -> None:
    assert (digest_entries(one) == digest_entries(other)) == (exact(one) == exact(other))


@settings(max_examples=examples(100))
@given(st.lists(ENTRIES, max_size=6), st.randoms())
def test_digest_has_no_order(entries: list[LiveEntry], random: object) -> None:
    mixed = list(entries)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert digest_entries(mixed) == digest_entries(entries) == planned_entries(entries, 2).digest


def test_digest_of_nothing_is_empty() -> None:
    assert digest_entries(()) == EntriesDigest(0, 0, 0)


def test_fields_that_two_entries_swap_are_noticed() -> None:
    one, other = OLD, NEW._replace(data_sequence_number=2)
    swapped = (one._replace(data_sequence_number=2), other._replace(data_sequence_number=1))
    assert digest_entries(swapped) != digest_entries((one, other))


def test_planned_entries_are_counted_by_partition() -> None:
    found = planned_entries(iter([OLD, NEW, OLD._replace(path="b", partition=(None,))]), 3)
    assert found.partitions == {("a",): 2, (None,): 1}
    assert (found.digest.entries, found.digest.records) == (3, 30)


@pytest.mark.parametrize(("version", "may_gain"), [(1, False), (2, False), (3, True)])
def test_data_files_without_row_ids_may_gain_them_in_v3_only(version: int, *, may_gain: bool) -> None:
    before = planned_entries([OLD, NEW], version)
    after = digest_entries([OLD._replace(first_row_id=7), NEW], before.without_row_ids)
    assert (after == before.digest) is may_gain


@pytest.mark.parametrize(
    "after",
    [
        [OLD, NEW._replace(first_row_id=41)],
        [OLD, NEW._replace(first_row_id=None)],
        [OLD._replace(first_row_id=7, data_sequence_number=2), NEW],
        [OLD._replace(first_row_id=7), OLD._replace(first_row_id=8), NEW],
    ],
    ids=["other id", "id lost", "gained with another change", "twice"],
)
def test_row_ids_that_were_there_stay(after: list[LiveEntry]) -> None:
    before = planned_entries([OLD, NEW], 3)
    assert digest_entries(after, before.without_row_ids) != before.digest


def test_deletes_gain_no_row_ids() -> None:
    before = planned_entries([VECTOR], 3)
    assert before.without_row_ids == frozenset()
    assert digest_entries([VECTOR._replace(first_row_id=1)], before.without_row_ids) != before.digest
