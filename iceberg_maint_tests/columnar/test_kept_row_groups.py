"""Files of one large row group keep it: their chunks are copied with their dictionaries."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from iceberg_maint.columnar.parquet.parquet_metadata import MetadataError, ParquetBytes, get
from iceberg_maint.columnar.parquet.reader import opened
from iceberg_maint.columnar.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, Struct
from iceberg_maint.columnar.rewrite import rewrite
from iceberg_maint.columnar.splice import page_splice, splice_check, splice_file
from iceberg_maint.columnar.splice.splice_check import difference
from iceberg_maint.columnar.splice.splice_file import Part, SpliceWriter, template
from iceberg_maint.columnar.task import Encoding, InputFile, RewriteTask, WrongInputError
from iceberg_maint_tests.columnar.test_page_splice import (
    PLAIN,
    ROWS,
    SCHEMA,
    WRONG_STATISTICS,
    damaged,
    row,
    without_splice,
)
from iceberg_maint_tests.columnar.test_splice import edited, metadata
from iceberg_maint_tests.support.columnar.damage import TEXTS, with_index_outside
from iceberg_maint_tests.support.columnar.tables import field, schema_of, task_of, write_file

pytestmark = pytest.mark.seconds

COPIED = (1, 2, 3, 4, 5, 6)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[InputFile]:
    folder = tmp_path_factory.mktemp("kept")
    options = {**PLAIN, "use_dictionary": True, "max_rows_per_page": 1000}
    return [
        write_file(
            folder, f"{k}.parquet", SCHEMA, [row(n) for n in range(k * ROWS, (k + 1) * ROWS)], **options
        )
        for k in range(3)
    ]


@pytest.fixture
def task(tmp_path: Path, files: list[InputFile], monkeypatch: pytest.MonkeyPatch) -> RewriteTask:
    size = min(f.size_bytes for f in files)
    monkeypatch.setattr(page_splice, "LEAST_GROUP_BYTES", size)
    encoding = Encoding(row_group_bytes=max(f.size_bytes for f in files))
    return task_of(tmp_path, SCHEMA, files, splice=True, encoding=encoding)


def chunk_bytes(path: str, group: int, column: int) -> bytes:
    return bytes(ParquetBytes.of(Path(path).read_bytes()).chunk(group, column).pages_bytes)


def test_large_row_groups_are_copied_with_dictionaries_and_small_pages(task: RewriteTask) -> None:
    found, expected = rewrite(task), without_splice(task)
    assert (found.spliced, found.proof.difference) == (COPIED, "")
    footer = pq.read_metadata(found.path)
    assert [footer.row_group(i).num_rows for i in range(footer.num_row_groups)] == [ROWS] * 3
    assert pq.read_table(found.path).to_pandas().equals(pq.read_table(expected.path).to_pandas())
    sizes, offsets = found.metrics.column_sizes, found.metrics.split_offsets
    assert replace(expected.metrics, column_sizes=sizes, split_offsets=offsets) == found.metrics
    assert len(offsets) == 3
    for group, file in enumerate(task.inputs):
        for column in (0, 2, 3, 4, 5):
            assert chunk_bytes(found.path, group, column) == chunk_bytes(file.path, 0, column)
            assert "RLE_DICTIONARY" in footer.row_group(group).column(column).encodings


def test_pages_of_a_kept_row_group_are_those_of_its_source(task: RewriteTask) -> None:
    found = rewrite(task)
    pages = [
        len(get(ParquetBytes.of(Path(p).read_bytes()).chunk(0, 0).offset_index or {}, 1)[1])
        for p in (found.path, task.inputs[0].path)
    ]
    assert pages == [10, 10]


def test_small_row_groups_are_merged(task: RewriteTask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_splice, "LEAST_GROUP_BYTES", task.inputs[0].size_bytes * 2)
    found = rewrite(task)
    assert (found.spliced, found.proof.difference) == ((), "")


def test_row_groups_of_small_chunks_are_merged(task: RewriteTask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_splice, "_COLUMNS", 5)
    assert rewrite(task).spliced == ()
    monkeypatch.setattr(page_splice, "_COLUMNS", 6)
    assert rewrite(replace(task, output_path=f"{task.output_path}.again")).spliced == COPIED


def test_copied_texts_of_which_each_page_has_a_dictionary_are_decoded_as_such(
    task: RewriteTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []

    def spy(contents: Any, *, metadata: Any, dictionaries: Sequence[str]) -> Any:
        asked.append(tuple(dictionaries))
        return opened(contents, metadata=metadata, dictionaries=dictionaries)

    monkeypatch.setattr(splice_check, "opened", spy)
    assert rewrite(task).spliced == COPIED
    options = {**PLAIN, "use_dictionary": True, "dictionary_pagesize_limit": 50_000}
    file = write_file(tmp_path, "n.parquet", SCHEMA, [row(n) for n in range(ROWS)], **options)
    monkeypatch.setattr(page_splice, "LEAST_GROUP_BYTES", 1)
    plain = replace(task, inputs=(file,), output_path=f"{task.output_path}.again")
    assert rewrite(plain).spliced == COPIED
    assert asked == [("text", "flag"), ("flag",)]


def test_kept_chunk_with_an_index_outside_of_its_dictionary_is_refused(
    task: RewriteTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_splice, "LEAST_GROUP_BYTES", 1)
    monkeypatch.setattr(page_splice, "_MEAN_FILE_BYTES", 1)
    schema = schema_of(field(1, "id", "long"), field(2, "s", "string"))
    options = {**PLAIN, "compression": "none", "use_dictionary": ["s"]}
    rows = [{"id": n, "s": TEXTS[n * 7919 % 5]} for n in range(ROWS)]
    file = write_file(tmp_path, "i.parquet", schema, rows, **options)
    encoding = Encoding(codec="uncompressed", level=None, row_group_bytes=file.size_bytes)
    one = replace(task, schema=schema, inputs=(file,), encoding=encoding)
    spliced = page_splice.spliced_result(one)
    assert spliced is not None
    assert spliced.spliced == (1, 2)
    Path(spliced.path).unlink()
    with_index_outside(file.path, 1)
    assert page_splice.spliced_result(one) is None
    with pytest.raises(WrongInputError, match="cannot be read as Parquet: Index not in dictionary bounds"):
        rewrite(one)
    assert not Path(one.output_path).exists()


def test_one_small_file_among_large_ones_merges_all(
    task: RewriteTask, tmp_path: Path, files: list[InputFile]
) -> None:
    options = {**PLAIN, "use_dictionary": True}
    small = write_file(tmp_path, "small.parquet", SCHEMA, [row(n) for n in range(50)], **options)
    found = rewrite(replace(task, inputs=(*files, small)))
    assert (found.spliced, found.record_count) == ((), 3 * ROWS + 50)


@pytest.mark.parametrize("place", [0, 2])
def test_empty_file_among_large_ones_has_no_say(
    task: RewriteTask, tmp_path: Path, files: list[InputFile], place: int
) -> None:
    empty = write_file(tmp_path, "empty.parquet", SCHEMA, [])
    inputs = (*files[:place], empty, *files[place:])
    found = rewrite(replace(task, inputs=inputs))
    assert (found.spliced, found.record_count, found.proof.difference) == (COPIED, 3 * ROWS, "")
    assert pq.read_metadata(found.path).num_row_groups == 3


def test_file_of_two_row_groups_is_encoded(task: RewriteTask, tmp_path: Path, files: list[InputFile]) -> None:
    options = {**PLAIN, "use_dictionary": True, "row_group_size": ROWS // 2}
    two = write_file(tmp_path, "two.parquet", SCHEMA, [row(n) for n in range(ROWS)], **options)
    assert rewrite(replace(task, inputs=(two, *files[1:]))).spliced == ()
    assert not page_splice._is_large_group(ParquetBytes.of(Path(two.path).read_bytes()))
    assert page_splice._is_large_group(ParquetBytes.of(Path(files[0].path).read_bytes()))


def test_row_group_larger_than_the_table_allows_is_encoded(task: RewriteTask) -> None:
    size = max(f.size_bytes for f in task.inputs)
    assert rewrite(replace(task, encoding=Encoding(row_group_bytes=size // 2))).spliced == ()


def test_large_row_groups_are_copied_one_at_a_time_in_little_memory(task: RewriteTask) -> None:
    size = max(f.size_bytes for f in task.inputs)
    found = rewrite(replace(task, memory_limit_bytes=9 * size))
    assert (found.spliced, found.proof.difference) == (COPIED, "")
    assert len(found.metrics.split_offsets) == 3


def test_row_lineage_is_encoded_beside_kept_chunks(task: RewriteTask) -> None:
    inputs = tuple(replace(f, first_row_id=1000 * i) for i, f in enumerate(task.inputs))
    found = rewrite(replace(task, inputs=inputs, format_version=3, keep_row_lineage=True))
    assert (found.spliced, found.proof.difference) == (COPIED, "")
    ids = pq.read_table(found.path, columns=["_row_id"]).column(0).to_pylist()
    assert (ids[0], ids[ROWS - 1], ids[ROWS], ids[-1]) == (0, ROWS - 1, 1000, 2000 + ROWS - 1)


def test_renamed_column_keeps_its_chunk_under_the_new_name(task: RewriteTask) -> None:
    found = rewrite(replace(task, schema=task.schema.replace('"flag"', '"sign"')))
    assert (found.spliced, found.proof.difference) == (COPIED, "")
    before = pq.read_table([f.path for f in task.inputs]).column("flag")
    assert pq.read_table(found.path).column("sign").equals(before)


@pytest.mark.parametrize(
    "name", ["an upper bound below a row", "a lower bound above a row", "a null that no row has"]
)
def test_kept_chunk_whose_source_states_wrong_statistics_is_encoded(
    task: RewriteTask, tmp_path: Path, name: str
) -> None:
    file = damaged(task.inputs[1], WRONG_STATISTICS[name], tmp_path)
    wrong = replace(task, inputs=(task.inputs[0], file))
    assert page_splice.spliced_result(wrong) is None
    assert not Path(task.output_path).exists()


def metadata_edit(index: int, edit: Callable[[Struct], object]) -> Callable[[bytes], bytes]:
    return lambda data: edited(data, lambda footer: edit(metadata(footer, index)))


def of_dictionary_only(number: int) -> Callable[[Struct], object]:
    """Claims of a chunk with plain pages that all of its pages have the dictionary, as field `number`."""
    counts = [{1: (I32, 2), 2: (I32, 0), 3: (I32, 1)}, {1: (I32, 0), 2: (I32, 8), 3: (I32, 10)}]

    def edit(chunk: Struct) -> None:
        if number == 13:
            chunk[13] = (LIST, (STRUCT, counts))
        else:
            del chunk[13]
            chunk[2] = (LIST, (I32, [2, 3]))

    return edit


WRONG_METADATA: dict[str, Callable[[bytes], bytes]] = {
    "the first page after its place": metadata_edit(3, lambda c: c.update({9: (I64, get(c, 9) + 3)})),
    "the first page at the dictionary": metadata_edit(3, lambda c: c.update({9: c[11]})),
    "dictionary and first page exchanged": metadata_edit(3, lambda c: c.update({9: c[11], 11: c[9]})),
    "page encodings without the plain ones": metadata_edit(2, of_dictionary_only(13)),
    "encodings without the plain one": metadata_edit(2, of_dictionary_only(2)),
    "a lower bound that no row has": metadata_edit(
        0, lambda c: get(c, 12).update({6: (BINARY, (-(10**6)).to_bytes(8, "little", signed=True))})
    ),
    "a lower bound of floats that no row has": metadata_edit(
        1, lambda c: get(c, 12).update({6: (BINARY, struct.pack("<d", -1.0))})
    ),
    "an upper bound of floats below a row": metadata_edit(
        1, lambda c: get(c, 12).update({5: (BINARY, struct.pack("<d", 1.0))})
    ),
    "an upper bound that no row has": metadata_edit(
        0, lambda c: get(c, 12).update({5: (BINARY, (10**7).to_bytes(8, "little"))})
    ),
}
"""What Arrow does not look at when it reads all rows. Other readers find no dictionary, skip row groups, or answer a
query for the largest value from the bounds."""


@pytest.mark.parametrize("name", WRONG_METADATA)
def test_kept_chunk_whose_source_states_wrong_metadata_is_encoded(
    task: RewriteTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(page_splice, "LEAST_GROUP_BYTES", 1)
    options = {
        **PLAIN,
        "use_dictionary": True,
        "max_rows_per_page": 1000,
        "dictionary_pagesize_limit": 50_000,
    }
    file = write_file(tmp_path, "n.parquet", SCHEMA, [row(n) for n in range(ROWS)], **options)
    one = replace(task, inputs=(file,), encoding=Encoding(row_group_bytes=file.size_bytes))
    right = page_splice.spliced_result(one)
    assert right is not None
    assert right.spliced == COPIED
    Path(right.path).unlink()
    wrong = replace(one, inputs=(damaged(file, WRONG_METADATA[name], tmp_path),))
    assert page_splice.spliced_result(wrong) is None
    assert not Path(task.output_path).exists()
    found, expected = rewrite(wrong), without_splice(one)
    assert (found.spliced, found.proof.difference) == ((), "")
    assert found.metrics == expected.metrics


def test_chunk_of_an_old_writer_without_a_place_of_its_dictionary_is_copied(
    task: RewriteTask, tmp_path: Path
) -> None:
    edit = metadata_edit(3, lambda c: c.update({9: c.pop(11)}))
    file = damaged(task.inputs[1], edit, tmp_path)
    found = rewrite(replace(task, inputs=(task.inputs[0], file)))
    assert (found.spliced, found.proof.difference) == (COPIED, "")
    before = pq.read_table([f.path for f in task.inputs[:2]]).column("flag")
    assert pq.read_table(found.path).column("flag").equals(before)


def test_chunk_of_uuids_is_copied(task: RewriteTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_splice, "LEAST_GROUP_BYTES", 1)
    monkeypatch.setattr(page_splice, "_MEAN_FILE_BYTES", 1)
    schema = schema_of(field(1, "u", "uuid"), field(2, "id", "long"))
    rows = [{"u": None if n % 9 == 0 else (n % 700).to_bytes(16, "big"), "id": n} for n in range(ROWS)]
    file = write_file(tmp_path, "u.parquet", schema, rows, **{**PLAIN, "use_dictionary": True})
    found = rewrite(replace(task, schema=schema, inputs=(file,)))
    assert (found.spliced, found.proof.difference) == ((1, 2), "")
    assert found.metrics.lower_bounds[1] == bytes(16)
    assert pq.read_table(found.path).equals(pq.read_table(file.path))


def test_dictionary_that_was_damaged_in_its_source_is_not_copied_where_it_has_a_checksum(
    task: RewriteTask, tmp_path: Path
) -> None:
    options = {**PLAIN, "compression": "none", "use_dictionary": True, "write_page_checksum": True}
    file = write_file(tmp_path, "d.parquet", SCHEMA, [row(n) for n in range(ROWS)], **options)
    size = file.size_bytes
    encoding = Encoding(codec="uncompressed", level=None, row_group_bytes=size)
    one = replace(task, inputs=(file,), encoding=encoding)
    spliced = page_splice.spliced_result(one)
    assert spliced is not None
    assert spliced.spliced == COPIED
    Path(spliced.path).unlink()
    data = bytearray(Path(file.path).read_bytes())
    start = ParquetBytes.of(bytes(data)).chunk(0, 0).start
    # The lowest bit of an id in the dictionary.
    data[start + 200 & ~7] ^= 1
    Path(file.path).write_bytes(data)
    assert page_splice.spliced_result(one) is None


def kept(task: RewriteTask) -> tuple[bytes, ParquetBytes, Part]:
    """A file of the first input's row group, its schema, and what it was copied from."""
    sources = [ParquetBytes.of(Path(f.path).read_bytes()) for f in task.inputs[:1]]
    form = template(pq.read_schema(task.inputs[0].path).remove_metadata())
    sink = io.BytesIO()
    part = Part(sources, ())
    writer = SpliceWriter(sink, form, {1, 2, 3, 4, 5, 6}, {})
    writer.write(part)
    writer.close()
    return sink.getvalue(), form, part


def moved(number: int) -> Callable[[Struct], object]:
    def edit(footer: Struct) -> None:
        chunk = metadata(footer, 3)
        chunk[number] = (I64, get(chunk, number) + 1)

    return edit


def without_dictionary(footer: Struct) -> None:
    del metadata(footer, 3)[11]


@pytest.mark.parametrize("edit", [moved(9), without_dictionary], ids=["first page", "dictionary"])
def test_place_of_a_dictionary_or_first_page_that_differs_is_found(
    task: RewriteTask, edit: Callable[[Struct], object]
) -> None:
    data, form, part = kept(task)
    assert difference(data, form, [part], {1, 2, 3, 4, 5, 6}) == ""
    assert difference(edited(data, edit), form, [part], {1, 2, 3, 4, 5, 6}) != ""


def test_merged_chunks_with_a_dictionary_are_refused(task: RewriteTask) -> None:
    source = ParquetBytes.of(Path(task.inputs[0].path).read_bytes())
    chunk = source.chunk(0, 3)
    with pytest.raises(MetadataError, match="a page has type 2, not a data page"):
        chunk.pages()
    assert sum(p.values for p in chunk.pages(with_dictionary=True)) == ROWS
    assert not splice_file.Part([source, source], ()).is_isolated
