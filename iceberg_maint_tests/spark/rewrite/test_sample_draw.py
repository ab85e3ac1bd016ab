"""The draws of a sample: the same for each attempt, evenly spread, within limits."""

from __future__ import annotations

import pytest

from iceberg_maint.engines.spark.rewrite.columnar.sample import Draw, column_bytes, place_of

BATCHES = [Draw(f"batch {n}") for n in range(1000)]


@pytest.mark.parametrize(("share", "batches"), [(0.0, 0), (0.1, 114), (0.5, 530), (1.0, 1000)])
def test_share_of_batches_is_drawn(share: float, batches: int) -> None:
    assert sum(draw.falls_in(share) for draw in BATCHES) == batches


def test_batch_that_a_share_has_is_in_each_larger_one() -> None:
    assert all(draw.falls_in(0.3) for draw in BATCHES if draw.falls_in(0.2))


def test_draws_of_a_batch_depend_on_its_id_alone() -> None:
    assert [Draw("a").below("row group", 5) for _ in range(3)] == [3, 3, 3]
    assert {draw.below("row group", 5) for draw in BATCHES} == {0, 1, 2, 3, 4}


def test_columns_are_all_if_they_fit() -> None:
    assert Draw("a").columns({3: 10, 1: 20, 2: 30}, 3, 60) == (3, 1, 2)


def test_columns_keep_within_their_number_and_bytes() -> None:
    sizes = {1: 10, 2: 10, 3: 10, 4: 100}
    assert {draw.columns(sizes, 1, 50) for draw in BATCHES} == {(1,), (2,), (3,)}
    assert {draw.columns(sizes, 4, 20) for draw in BATCHES} == {(1, 2), (1, 3), (2, 3)}
    assert Draw("a").columns(sizes, 4, 9) == ()


@pytest.mark.parametrize(("row", "place"), [(0, (0, 0)), (2, (0, 2)), (3, (2, 0)), (7, (2, 4))])
def test_row_is_found_in_its_file(row: int, place: tuple[int, int]) -> None:
    assert place_of([3, 0, 5], row) == place


def test_row_behind_all_files_is_an_error() -> None:
    with pytest.raises(ValueError, match="the files have 8 rows, none has number 9"):
        place_of([3, 0, 5], 9)


def test_bytes_of_a_column_are_those_of_its_leaves() -> None:
    struct = {"type": "struct", "fields": [{"id": 5, "type": "int"}, {"id": 6, "type": "string"}]}
    fields = [
        {"id": 1, "type": "long"},
        {"id": 2, "type": struct},
        {
            "id": 3,
            "type": {
                "type": "list",
                "element-id": 7,
                "element": struct | {"fields": [{"id": 8, "type": "int"}]},
            },
        },
        {"id": 4, "type": {"type": "map", "key-id": 9, "key": "string", "value-id": 10, "value": "int"}},
        {"id": 11, "type": "date"},
    ]
    leaf_bytes = {1: 100, 5: 10, 6: 20, 8: 40, 9: 3, 10: 4, 99: 23}
    assert column_bytes(fields, [99, 98], leaf_bytes, 2.0) == {
        1: 200, 2: 60, 3: 80, 4: 14, 11: 80, 99: 46, 98: 80,
    }  # fmt: skip
    assert column_bytes(fields[:1], [], {}, 2.0) == {1: 0}
