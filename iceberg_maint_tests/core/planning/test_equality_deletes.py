"""Equality deletes as values: scope, order, who still needs one, which keys can be matched, widths."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iceberg_maint.core.model.partition_key import PartitionSpec
from iceberg_maint.core.model.table_state import FileKind, LiveFile
from iceberg_maint.core.planning.batch_memory import MemoryNeed
from iceberg_maint.core.planning.equality_deletes import (
    EqualityDeletes,
    LiveData,
    PlannedReach,
    beside_bytes,
    can_be_key,
    has_unsupported_key,
    key_bytes,
    key_work_bytes,
    memory_need,
    planned_deletes,
    widest_key_bytes,
)
from iceberg_maint.core.planning.work import EqualityDeleteFile
from iceberg_maint_tests.support.core.values import BY_P, data, delete

SPECS = {0: BY_P, 1: PartitionSpec(1, ()), 2: PartitionSpec(2, BY_P.fields)}
EQ = FileKind.EQUALITY_DELETES


def equality(path: str, seq: int, **keys: object) -> LiveFile:
    return delete(path, EQ, seq=seq, **keys)  # type: ignore[arg-type]


def everywhere(path: str, seq: int) -> LiveFile:
    return equality(path, seq, partition="__all__", spec_id=1)


def paths(files: tuple[LiveFile, ...]) -> list[str]:
    return [f.path for f in files]


HERE, THERE, OTHER_SPEC = (
    equality("here", 3),
    equality("there", 9, partition="p=b"),
    equality("s", 9, spec_id=2),
)
ALL = (HERE, THERE, OTHER_SPEC, everywhere("g5", 5), everywhere("g2", 2))


@pytest.mark.parametrize(
    ("seq", "found"), [(1, ["g2", "here", "g5"]), (2, ["here", "g5"]), (3, ["g5"]), (5, [])]
)
def test_deletes_apply_strictly_below_their_number_and_in_their_scope(seq: int, found: list[str]) -> None:
    deletes = EqualityDeletes.of(SPECS, ALL)
    file = data("f", 10, seq=seq)
    assert paths(deletes.applying([file])) == found
    assert deletes.apply_to(file) is bool(found)


def test_deletes_on_several_files_are_those_on_any_of_them() -> None:
    deletes = EqualityDeletes.of(SPECS, ALL)
    files = [data("a", 1, seq=4), data("b", 1, seq=6, partition="p=b"), data("c", 1, seq=9)]
    assert paths(deletes.applying(files)) == ["g5", "there"]
    assert deletes.applying([]) == ()
    assert [deletes.apply_everywhere_to(f) for f in files] == [True, False, False]


@pytest.mark.parametrize(
    ("scope", "number", "count"),
    [((1, "p=a"), 1, 3), ((1, "p=a"), 2, 2), ((1, "p=a"), 3, 1), ((1, "p=b"), 2, 1), ((1, "p=b"), 4, 0)],
)
def test_planned_deletes_are_counted_by_scope_and_strictly_lower_sequence_number(
    scope: tuple[int, str], number: int, count: int
) -> None:
    def planned(spec_id: int, partition: str, number: int, *, everywhere: bool = False) -> EqualityDeleteFile:
        return EqualityDeleteFile(f"d{number}", spec_id, partition, everywhere, (1,), number, 1, 1, True)

    deletes = (planned(1, "p=a", 3), planned(1, "p=a", 2), planned(0, "all", 4, everywhere=True))
    assert PlannedReach(deletes).count(scope, number) == count


def test_dangling_deletes_apply_to_no_file() -> None:
    deletes = EqualityDeletes.of(SPECS, ALL)
    assert paths(deletes.dangling([data("f", 10, seq=3)])) == ["g2", "here", "s", "there"]
    assert len(deletes.dangling([])) == 5


def test_needed_are_deletes_that_apply_to_a_file_left_behind() -> None:
    files = [data("old", 1, seq=1), data("new", 1, seq=4), data("else", 1, seq=2, partition="p=b")]
    live = LiveData.of(files)
    deletes = (HERE, everywhere("g5", 5), everywhere("g2", 2))
    assert live.needed_beside(deletes, frozenset({"old"}), SPECS) == {"g5"}
    assert live.needed_beside(deletes, frozenset({"old", "new"}), SPECS) == {"g5"}
    assert live.needed_beside(deletes, frozenset({"old", "new", "else"}), SPECS) == frozenset()
    assert live.needed_beside(deletes, frozenset({"new"}), SPECS) == {"here", "g5", "g2"}


@pytest.mark.parametrize(
    ("column_type", "can"),
    [
        *((t, True) for t in ("int", "long", "string", "date", "timestamptz", "uuid", "boolean", "binary")),
        *((t, True) for t in ("decimal(38, 2)", "decimal(9,2)", "fixed[16]", "timestamp_ns", "time")),
        *((t, False) for t in (None, "float", "double", "variant", "unknown", "geometry(srid:4326)")),
    ],
)
def test_key_types(column_type: str | None, can: bool) -> None:
    assert can_be_key(column_type) is can


@pytest.mark.parametrize(
    ("keys", "unsupported"),
    [((1,), False), ((1, 2), False), ((3,), True), ((1, 3), True), ((9,), True), ((), True)],
)
def test_delete_on_a_column_that_cannot_be_a_key_is_unsupported(
    keys: tuple[int, ...], unsupported: bool
) -> None:
    types = {1: "long", 2: "string", 3: "double"}
    one = equality("e", 2, keys=keys)
    assert has_unsupported_key(one, types) is unsupported
    found = EqualityDeletes.of(SPECS, [one, everywhere("g", 2)]).unsupported(types)
    assert found.apply_to(data("f", 1)) is unsupported


def test_key_bytes_add_up_the_columns() -> None:
    assert key_bytes(["int", "long", "string"]) == 36
    assert key_bytes(["decimal(38, 2)", "fixed[16]", "boolean", "uuid"]) == 69


def test_key_work_is_the_key_columns_and_the_deletes() -> None:
    """A file's key columns are never more than the file."""
    files = [data("a", 1000, records=10), data("b", 50, records=10)]
    deletes = [equality("e", 2), equality("d", 2, keys=(1, 2))]
    width = widest_key_bytes(deletes, {1: "long", 2: "string"})
    assert key_work_bytes(files, deletes, width) == 320 + 50 + 10
    assert key_work_bytes(files, deletes[:1], 8) == 80 + 50 + 5


def test_memory_need_counts_delete_rows_as_wide_as_the_widest() -> None:
    deletes = [equality("e", 2, records=7), equality("d", 3, records=5, keys=(1, 2))]
    assert memory_need(deletes, 40, {1: "long", 2: "string"}, 1.5) == MemoryNeed(12, 32, 40, 1.5)


@pytest.mark.parametrize(
    ("kinds", "size_bytes", "key_bytes"),
    [
        # 500 bytes each are stored, which nothing in memory is narrower than.
        ({1: "string"}, 504_096, 500),
        ({1: "string"}, 9_096, 24),
        # A footer is no key.
        ({1: "string"}, 4_000, 24),
        ({1: "long"}, 504_096, 8),
    ],
)
def test_memory_need_of_text_is_no_less_than_what_is_stored(
    kinds: dict[int, str], size_bytes: int, key_bytes: int
) -> None:
    wide = replace(equality("e", 3), equality_ids=(1,), size_bytes=size_bytes, record_count=1000)
    assert memory_need([wide], 40, kinds, 1.0) == MemoryNeed(1000, key_bytes, 40)


@pytest.mark.parametrize(
    ("kinds", "beside"),
    [(["long"], 0), (["int"], 4), (["int", "date"], 8), (["string"], 8), (["string", "boolean"], 15)],
)
def test_bytes_beside_keys_fill_fields_of_eight_bytes_and_say_where_text_lies(
    kinds: list[str], beside: int
) -> None:
    assert beside_bytes(kinds) == beside
    assert (key_bytes(kinds) + beside) % 8 == 0


def test_planned_delete_says_scope_and_whether_it_is_dropped() -> None:
    deletes = (equality("e", 2, keys=(2, 1), records=7), everywhere("g", 3))
    assert planned_deletes(deletes, frozenset({"g"}), SPECS) == (
        EqualityDeleteFile("e", 0, "p=a", False, (1, 2), 2, 7, 5, drop=True),
        EqualityDeleteFile("g", 1, "__all__", True, (1,), 3, 1, 5, drop=False),
    )


def test_void_fields_only_make_a_delete_apply_everywhere() -> None:
    void = PartitionSpec(3, tuple(replace(f, transform="void") for f in BY_P.fields))
    deletes = EqualityDeletes.of({0: BY_P, 3: void}, [equality("g", 3, partition="__all__", spec_id=3)])
    assert deletes.apply_everywhere_to(data("f", 1))
