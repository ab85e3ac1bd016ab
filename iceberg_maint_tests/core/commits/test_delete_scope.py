"""Which delete applies to which data file, by the spec's "Scan Planning"."""

from __future__ import annotations

import math

import pytest

from iceberg_maint.core.commits.change import Entry, scope_of
from iceberg_maint.core.commits.delete_scope import DeleteIndex, dropped_deletes
from iceberg_maint.core.model.table_state import FileKind
from iceberg_maint_tests.support.core.memory_table import ALL, P1, P2, Q1, UNPARTITIONED, File, Lake


def applies(delete: Entry, data: Entry) -> bool:
    return DeleteIndex([delete], UNPARTITIONED).find(data) is delete


@pytest.mark.parametrize(
    ("kind", "delete_seq", "data_seq", "expected"),
    [
        (FileKind.EQUALITY_DELETES, 5, 4, True),
        (FileKind.EQUALITY_DELETES, 5, 5, False),
        (FileKind.EQUALITY_DELETES, 5, 6, False),
        (FileKind.POSITION_DELETES, 5, 5, True),
        (FileKind.POSITION_DELETES, 5, 6, False),
    ],
)
def test_delete_applies_by_sequence_number(
    kind: FileKind, delete_seq: int, data_seq: int, expected: bool
) -> None:
    delete, data = Entry("d", kind, P1, delete_seq, 1), Entry("f", FileKind.DATA, P1, data_seq, 1)
    assert applies(delete, data) is expected


def test_delete_of_another_partition_or_spec_does_not_apply() -> None:
    data = Entry("f", FileKind.DATA, P1, 1, 1)
    for place in (Q1, P2):
        assert not applies(Entry("d", FileKind.EQUALITY_DELETES, place, 9, 1), data)
    assert applies(Entry("d", FileKind.EQUALITY_DELETES, ALL, 9, 1), data)
    assert not applies(Entry("d", FileKind.POSITION_DELETES, ALL, 9, 1), data)


def test_scope_compares_floats_by_bits() -> None:
    assert scope_of(1, (math.nan,), UNPARTITIONED) == scope_of(1, (float("nan"),), UNPARTITIONED)
    assert scope_of(1, (0.0,), UNPARTITIONED) != scope_of(1, (-0.0,), UNPARTITIONED)


def test_scope_of_void_fields_only_is_that_of_no_partition() -> None:
    assert scope_of(0, (None, None), UNPARTITIONED) == (0, ())
    assert scope_of(1, (None,), UNPARTITIONED) == (1, (None,))


def test_reach_of_many_deletes_is_that_of_the_newest() -> None:
    deletes = [Entry(f"d{n}", FileKind.EQUALITY_DELETES, P1, n, 1) for n in (3, 7, 5)]
    deletes.append(Entry("all", FileKind.EQUALITY_DELETES, ALL, 4, 1))
    reach = DeleteIndex(deletes, UNPARTITIONED)
    found = {
        (place, seq): reach.find(Entry("f", FileKind.DATA, place, seq, 1))
        for place in (P1, Q1)
        for seq in (3, 4, 6, 7)
    }
    assert {k: d.path for k, d in found.items() if d} == {
        (P1, 3): "all",
        (P1, 4): "d7",
        (P1, 6): "d7",
        (Q1, 3): "all",
    }


@pytest.mark.parametrize(
    ("delete", "hit"),
    [
        (Entry("d", FileKind.EQUALITY_DELETES, P1, 4, 1), {"P1": True, "P2": False}),
        (Entry("d", FileKind.EQUALITY_DELETES, P1, 3, 1), {"P1": False, "P2": False}),
        (Entry("d", FileKind.EQUALITY_DELETES, ALL, 4, 1), {"P1": True, "P2": True}),
        (Entry("d", FileKind.POSITION_DELETES, P1, 3, 1), {"P1": True, "P2": False}),
        (Entry("d", FileKind.POSITION_DELETES, P1, 2, 1), {"P1": False, "P2": False}),
        (Entry("d", FileKind.POSITION_DELETES, P1, 3, 1, "f"), {"P1": True, "P2": True}),
        (Entry("d", FileKind.DELETION_VECTOR, P1, 2, 1, "f"), {"P1": False, "P2": False}),
    ],
)
def test_manifest_may_be_hit_by_spec_and_sequence_number(delete: Entry, hit: dict[str, bool]) -> None:
    reach = DeleteIndex([delete], UNPARTITIONED)
    for name, place in (("P1", P1), ("P2", P2)):
        [manifest] = Lake({"m3-0": (File("f", place, 3),)}).listed()
        assert reach.may_match(manifest) is hit[name]


def test_manifest_of_deletes_is_never_hit() -> None:
    reach = DeleteIndex([Entry("d", FileKind.EQUALITY_DELETES, ALL, 9, 1)], UNPARTITIONED)
    [manifest] = Lake({"m3-0": (File("e", P1, 3, FileKind.EQUALITY_DELETES),)}).listed()
    assert not reach.may_match(manifest)


@pytest.mark.parametrize(
    ("removed", "added", "left"),
    [
        ([Entry("d", FileKind.DELETION_VECTOR, P1, 3, 2, "f")], [], ["d"]),
        (
            [Entry("d", FileKind.DELETION_VECTOR, P1, 3, 2, "f"), Entry("f", FileKind.DATA, P1, 1, 9)],
            [],
            [],
        ),
        (
            [Entry("d", FileKind.DELETION_VECTOR, P1, 3, 2, "f")],
            [Entry("n", FileKind.DELETION_VECTOR, P1, 4, 2, "f")],
            [],
        ),
        (
            [Entry("d", FileKind.DELETION_VECTOR, P1, 3, 2, "f")],
            [Entry("n", FileKind.DELETION_VECTOR, P1, 4, 1, "f")],
            ["d"],
        ),
        (
            [Entry("d", FileKind.POSITION_DELETES, P1, 3, 2, "f")],
            [Entry("n", FileKind.POSITION_DELETES, P1, 4, 2, "f")],
            ["d"],
        ),
        ([Entry("d", FileKind.EQUALITY_DELETES, P1, 3, 2)], [], ["d"]),
    ],
)
def test_deletes_that_vanish_without_their_file_or_a_fuller_vector(
    removed: list[Entry], added: list[Entry], left: list[str]
) -> None:
    assert [d.path for d in dropped_deletes(removed, added)] == left
