"""Which position deletes of a plan apply to a data file."""

from iceberg_maint.core.model.ids import UNPARTITIONED_KEY
from iceberg_maint.core.planning.file_groups import AppliedDeletes
from iceberg_maint.core.planning.work import InputFile, PositionDeleteFile


def delete(path: str, data_file: str | None = None, offset: int | None = None) -> PositionDeleteFile:
    return PositionDeleteFile(path, 0, UNPARTITIONED_KEY, 3, 5, 100, data_file, offset)


def data_file(*deletes: str) -> InputFile:
    return InputFile("a.parquet", 1000, 10, 2, deletes)


def test_of_file_vectors_in_one_puffin_file_returns_the_one_of_the_data_file() -> None:
    own, other = delete("v.puffin", "a.parquet", 4), delete("v.puffin", "b.parquet", 60)
    assert AppliedDeletes([other, own]).of_file(data_file("v.puffin")) == (own,)


def test_of_file_path_named_twice_returns_each_delete_once() -> None:
    shared = delete("d.parquet")
    assert AppliedDeletes([shared]).of_file(data_file("d.parquet", "d.parquet")) == (shared,)


def test_of_file_several_files_returns_them_in_the_order_of_the_data_file() -> None:
    one, two = delete("1.parquet"), delete("2.parquet", "a.parquet")
    assert AppliedDeletes([one, two]).of_file(data_file("2.parquet", "1.parquet")) == (two, one)


def test_of_file_delete_that_the_plan_lacks_returns_nothing() -> None:
    assert AppliedDeletes([]).of_file(data_file("d.parquet")) == ()
