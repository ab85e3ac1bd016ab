"""Delete files with damaged bytes: no delete is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_maint.columnar.deleted_positions import deleted_positions
from iceberg_maint.columnar.parquet.parquet_metadata import get
from iceberg_maint.columnar.parquet.thrift import BINARY
from iceberg_maint.columnar.parquet.thrift import Struct as Fields
from iceberg_maint.columnar.rewrite import rewrite
from iceberg_maint.columnar.task import (
    DeletedPositionsTask,
    DeleteKind,
    DeleteReference,
    EqualityDelete,
    NotParquetError,
    RewriteTask,
    WrongInputError,
)
from iceberg_maint_tests.columnar.test_damaged_inputs import SCHEMA, texts
from iceberg_maint_tests.columnar.test_splice import edited
from iceberg_maint_tests.support.columnar.damage import (
    with_another_value,
    with_index_outside,
    with_negative_index,
)
from iceberg_maint_tests.support.columnar.tables import task_of, write_table


def rewritten_with_deletes(
    folder: Path, files: int, file_of: Callable[[int], int]
) -> tuple[str, RewriteTask]:
    """Deletes row n of file `file_of(n)` for 1,000 n, and rewrites the files of 1,000 rows. Returns the path of the delete
    file, and the task without its output."""
    inputs = [texts(folder, f"{k}.parquet", 1000) for k in range(files)]
    table = pa.table({"file_path": [inputs[file_of(n)].path for n in range(1000)], "pos": range(1000)})
    deleted = write_table(folder, "d.parquet", table, compression="none")
    delete = DeleteReference(DeleteKind.POSITION_FILE, deleted.path, deleted.size_bytes, record_count=1000)
    task = task_of(folder, SCHEMA, [replace(f, deletes=(delete,)) for f in inputs])
    assert rewrite(task).record_count == 1000 * (files - 1)
    Path(task.output_path).unlink()
    return deleted.path, task


def test_position_delete_file_with_an_index_outside_of_its_dictionary_is_refused(tmp_path: Path) -> None:
    path, task = rewritten_with_deletes(tmp_path, 5, lambda n: n * 7919 % 5)
    with_index_outside(path, 0)
    with pytest.raises(WrongInputError, match="index 7 is outside of a dictionary of 5 values"):
        rewrite(task)
    assert not Path(task.output_path).exists()


def test_position_delete_file_with_a_page_of_another_checksum_is_refused(tmp_path: Path) -> None:
    file = texts(tmp_path, "1.parquet", 1000)
    table = pa.table({"file_path": [file.path] * 10, "pos": range(10)})
    options = {"compression": "none", "use_dictionary": ["file_path"]}
    for checksum in (False, True):
        deleted = write_table(tmp_path, "d.parquet", table, write_page_checksum=checksum, **options)
        with_another_value(deleted.path, 1)
        delete = DeleteReference(DeleteKind.POSITION_FILE, deleted.path, deleted.size_bytes, record_count=10)
        task = task_of(tmp_path, SCHEMA, [replace(file, deletes=(delete,))])
        if checksum:
            with pytest.raises(WrongInputError, match=r"d.parquet cannot be read .*CRC"):
                rewrite(task)
        else:
            rows = pq.read_table(rewrite(task).path)
            assert sorted(set(range(1000)) - set(rows["id"].to_pylist())) == list(range(9))


def test_delete_file_of_another_format_is_told_from_a_damaged_one(tmp_path: Path) -> None:
    file = texts(tmp_path, "1.parquet", 1000)
    (tmp_path / "d.avro").write_bytes(b"Obj\x01" + bytes(100))
    delete = DeleteReference(DeleteKind.POSITION_FILE, str(tmp_path / "d.avro"), 104, record_count=1)
    with pytest.raises(NotParquetError, match=r"d.avro cannot be read as a position delete file"):
        rewrite(task_of(tmp_path, SCHEMA, [replace(file, deletes=(delete,))]))


def with_binary_paths(contents: bytes) -> bytes:
    def plain(footer: Fields) -> None:
        for number in (6, 10):
            del get(footer, 2)[1][1][number]

    return edited(contents, plain)


def with_a_path_that_is_no_utf8(contents: bytes) -> bytes:
    place = contents.index(b".parquet")
    return contents[:place] + b"\xff" + contents[place + 1 :]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (with_binary_paths, "has paths and positions of type dictionary<values=binary"),
        (with_a_path_that_is_no_utf8, "cannot be read as a position delete file: 'utf-8' codec"),
    ],
)
def test_position_delete_file_whose_paths_are_no_texts_is_refused(
    tmp_path: Path, damage: Callable[[bytes], bytes], words: str
) -> None:
    file = texts(tmp_path, "1.parquet", 1000)
    table = pa.table({"file_path": [file.path] * 10, "pos": range(10)})
    deleted = write_table(tmp_path, "d.parquet", table, compression="none")
    contents = damage(Path(deleted.path).read_bytes())
    Path(deleted.path).write_bytes(contents)
    delete = DeleteReference(DeleteKind.POSITION_FILE, deleted.path, len(contents), record_count=10)
    with pytest.raises(WrongInputError, match=words):
        rewrite(task_of(tmp_path, SCHEMA, [replace(file, deletes=(delete,))]))


def test_position_delete_file_with_a_negative_index_is_refused(tmp_path: Path) -> None:
    path, task = rewritten_with_deletes(tmp_path, 2, lambda n: n // 500)
    with_negative_index(path, 0)
    with pytest.raises(WrongInputError, match="index -1 is outside of a dictionary of 2 values"):
        rewrite(task)


def test_equality_delete_file_with_a_name_that_is_no_utf8_is_refused(tmp_path: Path) -> None:
    file, delete = texts(tmp_path, "1.parquet", 10), texts(tmp_path, "e.parquet", 5)

    def unnamed(footer: Fields) -> None:
        get(footer, 2)[1][1][4] = (BINARY, b"\xff")

    contents = edited(Path(delete.path).read_bytes(), unnamed)
    Path(delete.path).write_bytes(contents)
    deletes = (EqualityDelete(delete.path, len(contents), 5, 2, (1,)),)
    with pytest.raises(WrongInputError, match=r"e.parquet cannot be read as Parquet: 'utf-8' codec"):
        deleted_positions(DeletedPositionsTask((file,), deletes, SCHEMA))


def test_position_delete_file_that_names_another_data_file_than_its_metadata_is_refused(
    tmp_path: Path,
) -> None:
    """A rewrite of the stated file drops the delete file, and the rows of the other one would come back."""
    first, second = (texts(tmp_path, f"{n}.parquet", 1000) for n in range(2))
    table = pa.table({"file_path": [first.path, second.path, second.path], "pos": [1, 2, 3]})
    deleted = write_table(tmp_path, "d.parquet", table)
    of_any = DeleteReference(DeleteKind.POSITION_FILE, deleted.path, deleted.size_bytes)
    assert rewrite(task_of(tmp_path / "a", SCHEMA, [replace(first, deletes=(of_any,))])).record_count == 999
    of_first = replace(of_any, data_file=first.path)
    with pytest.raises(WrongInputError) as refused:
        rewrite(task_of(tmp_path / "b", SCHEMA, [replace(first, deletes=(of_first,))]))
    assert str(refused.value) == (
        f"the delete file {deleted.path} deletes rows of {second.path}; its manifest states that it names {first.path} only. "
        "Fix: remove the delete file from the table, and have the engine that wrote it delete its rows again."
    )
