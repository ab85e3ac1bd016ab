"""Input files and delete files with damaged bytes that Arrow reads without an error."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from iceberg_maint.columnar.check import page_index
from iceberg_maint.columnar.parquet.metadata_forms import COLUMN_INDEX, FOOTER, OFFSET_INDEX, PAGE_HEADER
from iceberg_maint.columnar.parquet.parquet_metadata import Chunk, MetadataError, ParquetBytes, get
from iceberg_maint.columnar.parquet.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    Form,
    Reader,
    ThriftError,
    encoded,
)
from iceberg_maint.columnar.parquet.thrift import Struct as Fields
from iceberg_maint.columnar.rewrite import rewrite
from iceberg_maint.columnar.splice import page_splice
from iceberg_maint.columnar.splice.splice_rules import CODECS, spliceable
from iceberg_maint.columnar.task import (
    Encoding,
    InputFile,
    RewriteTask,
    UnsupportedColumnError,
    WrongInputError,
)
from iceberg_maint_tests.columnar.test_splice import edited, metadata
from iceberg_maint_tests.support.columnar.damage import (
    TEXTS,
    checksums,
    with_another_value,
    with_index_outside,
)
from iceberg_maint_tests.support.columnar.tables import (
    field,
    schema_of,
    table_from,
    task_of,
    write_file,
    write_table,
)

SCHEMA = schema_of(field(1, "id", "long"), field(2, "s", "string"))
OPTIONS: dict[str, Any] = {"compression": "none", "use_dictionary": ["s"], "write_page_index": True}
ENCODING = Encoding(codec="uncompressed", level=None)


@cache
def table_of(rows: int) -> pa.Table:
    return table_from(SCHEMA, [{"id": n, "s": TEXTS[n * 7919 % 5]} for n in range(rows)])


def texts(folder: Path, name: str, rows: int, **options: Any) -> InputFile:
    return write_table(folder, name, table_of(rows), **OPTIONS, **options)


@pytest.mark.parametrize("splice", [False, True])
@pytest.mark.parametrize(("rows", "files"), [(60_000, 1), (60_000, 2), (500, 3)])
def test_input_with_an_index_outside_of_its_dictionary_is_refused(
    tmp_path: Path, rows: int, files: int, splice: bool
) -> None:
    inputs = [texts(tmp_path, f"{k}.parquet", rows) for k in range(files)]
    task = task_of(tmp_path, SCHEMA, inputs, splice=splice, encoding=ENCODING)
    assert rewrite(task).proof.difference == ""
    Path(task.output_path).unlink()
    with_index_outside(inputs[-1].path, 1)
    with pytest.raises(WrongInputError, match=r"cannot be read as Parquet: .*dictionary"):
        rewrite(task)
    assert not Path(task.output_path).exists()


@pytest.mark.parametrize("page_version", ["1.0", "2.0"])
@pytest.mark.parametrize("in_dictionary", [False, True])
@pytest.mark.parametrize(
    ("rows", "files", "splice", "memory"),
    [
        (500, 3, False, 1 << 30),  # decoded together
        (60_000, 1, False, 1 << 30),
        (60_000, 2, True, 1 << 30),
        (60_000, 2, False, 4096),  # streamed
    ],
)
def test_input_with_a_page_of_another_checksum_is_refused(
    tmp_path: Path,
    rows: int,
    files: int,
    splice: bool,
    memory: int,
    in_dictionary: bool,
    page_version: str,
) -> None:
    def written(name: str, *, checksum: bool) -> InputFile:
        return texts(tmp_path, name, rows, write_page_checksum=checksum, data_page_version=page_version)

    inputs = [written(f"{k}.parquet", checksum=True) for k in range(files)]
    task = task_of(tmp_path, SCHEMA, inputs, splice=splice, memory_limit_bytes=memory, encoding=ENCODING)
    assert rewrite(task).proof.difference == ""
    Path(task.output_path).unlink()
    with_another_value(inputs[-1].path, int(in_dictionary), in_dictionary=in_dictionary)
    with pytest.raises(WrongInputError, match=f"{files - 1}.parquet cannot be read as Parquet: .*CRC"):
        rewrite(task)
    assert not Path(task.output_path).exists()
    other = written("other.parquet", checksum=False)
    with_another_value(other.path, int(in_dictionary), in_dictionary=in_dictionary)
    assert rewrite(replace(task, inputs=(*inputs[:-1], other))).proof.difference == ""


@pytest.mark.parametrize(("rows", "splice"), [(500, False), (60_000, False), (60_000, True)])
def test_pages_that_are_written_state_their_checksum(tmp_path: Path, rows: int, splice: bool) -> None:
    inputs = [texts(tmp_path, f"{k}.parquet", rows, write_page_checksum=True) for k in range(2)]
    result = rewrite(task_of(tmp_path, SCHEMA, inputs, splice=splice))
    assert set(checksums(result.path)) == {True}


def test_file_with_an_unread_column_whose_name_is_no_utf8_is_refused(tmp_path: Path) -> None:
    file = texts(tmp_path, "1.parquet", 700)

    def unnamed(footer: Fields) -> None:
        get(footer, 2)[1][2][4] = (BINARY, b"\xff")

    contents = edited(Path(file.path).read_bytes(), unnamed)
    Path(file.path).write_bytes(contents)
    with pytest.raises(WrongInputError, match=r"1.parquet cannot be read as Parquet: 'utf-8' codec"):
        rewrite(
            task_of(tmp_path, schema_of(field(1, "id", "long")), [replace(file, size_bytes=len(contents))])
        )


def test_file_with_one_field_id_twice_is_named(tmp_path: Path) -> None:
    file = texts(tmp_path, "1.parquet", 700)

    def same_id(footer: Fields) -> None:
        get(footer, 2)[1][2][9] = (I32, 1)

    contents = edited(Path(file.path).read_bytes(), same_id)
    Path(file.path).write_bytes(contents)
    with pytest.raises(WrongInputError, match=r"1.parquet: Two columns of a file have the same field id"):
        rewrite(task_of(tmp_path, SCHEMA, [replace(file, size_bytes=len(contents))]))


@pytest.mark.parametrize("is_list", [False, True])
def test_file_with_a_dictionary_below_a_column_is_not_supported(tmp_path: Path, is_list: bool) -> None:
    kind: Any = {"type": "struct", "fields": [field(2, "element", "string")]}
    below = pa.field("element", pa.dictionary(pa.int32(), pa.string()), metadata={"PARQUET:field_id": "2"})
    values = pa.array(["a", "b"]).dictionary_encode()
    rows = pa.StructArray.from_arrays([values], fields=[below])
    if is_list:
        kind = {"type": "list", "element-id": 2, "element": "string", "element-required": False}
        rows = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), values, type=pa.list_(below))
    column = pa.field("c", rows.type, metadata={"PARQUET:field_id": "1"})
    file = write_table(tmp_path, "1.parquet", pa.table([rows], schema=pa.schema([column])), store_schema=True)
    with pytest.raises(UnsupportedColumnError, match="a file has type dictionary"):
        rewrite(task_of(tmp_path, schema_of(field(1, "c", kind)), [file]))


def test_chunk_with_another_physical_type_than_its_column_is_not_copied(tmp_path: Path) -> None:
    data = Path(texts(tmp_path, "1.parquet", 700).path).read_bytes()
    source = ParquetBytes.of(data)
    wanted = source.leaves[1]
    assert spliceable([source], wanted, CODECS["uncompressed"], alone=True) == ""
    other = ParquetBytes.of(edited(data, lambda footer: metadata(footer, 1).update({1: (I32, 99)})))
    words = "a chunk has another physical type than its column"
    assert spliceable([other], wanted, CODECS["uncompressed"], alone=True) == words


def test_footer_without_a_schema_is_damaged(tmp_path: Path) -> None:
    data = Path(texts(tmp_path, "1.parquet", 700).path).read_bytes()
    empty = ParquetBytes.of(edited(data, lambda footer: footer.update({2: (LIST, (STRUCT, []))})))
    with pytest.raises(MetadataError, match="the schema has no elements"):
        empty.leaves  # noqa: B018


def test_file_whose_row_group_has_other_rows_than_its_manifest_states_is_refused(tmp_path: Path) -> None:
    file = texts(tmp_path, "1.parquet", 30_000)
    contents = edited(Path(file.path).read_bytes(), lambda footer: footer.update({4: (LIST, (STRUCT, []))}))
    Path(file.path).write_bytes(contents)
    wrong = replace(file, size_bytes=len(contents))
    for splice in (False, True):
        for memory in (1 << 30, 4096):
            task = task_of(tmp_path, SCHEMA, [wrong], splice=splice, memory_limit_bytes=memory)
            with pytest.raises(WrongInputError, match="has 0 rows; its manifest states 30000"):
                rewrite(task)


def test_column_whose_name_is_no_utf8_is_refused_and_its_chunk_is_read_by_its_place(tmp_path: Path) -> None:
    file, other = texts(tmp_path, "1.parquet", 700), texts(tmp_path, "2.parquet", 700)
    data = Path(file.path).read_bytes()

    def unnamed_chunk(footer: Fields) -> None:
        metadata(footer, 0)[3] = (LIST, (BINARY, [b"\xff"]))

    def unnamed_column(footer: Fields) -> None:
        get(footer, 2)[1][1][4] = (BINARY, b"\xff")

    def task(contents: bytes) -> RewriteTask:
        Path(file.path).write_bytes(contents)
        return task_of(tmp_path, SCHEMA, [replace(file, size_bytes=len(contents)), other])

    assert rewrite(task(edited(data, unnamed_chunk))).record_count == 1400
    with pytest.raises(WrongInputError, match="cannot be read as Parquet: 'utf-8' codec"):
        rewrite(replace(task(edited(data, unnamed_column)), output_path=str(tmp_path / "other.parquet")))


LOCATION: Fields = {1: (I32, 4), 2: (I32, 30), 3: (I32, 0)}
NO_PAGE_HEADER: Fields = {1: (I32, 0), 2: (I32, 10)}


@pytest.mark.parametrize(
    ("fields", "form", "words"),
    [
        ({}, OFFSET_INDEX, "the offset index lacks field 1"),
        ({1: (LIST, (I32, [4]))}, OFFSET_INDEX, "field 1 of the offset index has another type"),
        (
            {1: (LIST, (STRUCT, [{1: (I32, 4)}]))},
            OFFSET_INDEX,
            "the page location lacks field 2",
        ),
        ({1: (I32, 4)}, OFFSET_INDEX, "field 1 of the offset index has another type"),
        ({2: (LIST, (BINARY, []))}, COLUMN_INDEX, "the column index lacks field 1"),
        (NO_PAGE_HEADER, PAGE_HEADER, "the page header lacks field 3"),
        ({**NO_PAGE_HEADER, 3: (BINARY, b"")}, PAGE_HEADER, "field 3 of the page header has another type"),
        (
            {**NO_PAGE_HEADER, 3: (I32, 1), 5: (STRUCT, {})},
            PAGE_HEADER,
            "the data page lacks field 1",
        ),
        (
            {**NO_PAGE_HEADER, 3: (I32, 1), 5: (I32, 1)},
            PAGE_HEADER,
            "field 5 of the page header has another type",
        ),
        ({2: (LIST, (STRUCT, [])), 3: (I32, 0)}, FOOTER, "the footer lacks field 4"),
    ],
)
def test_struct_with_other_fields_than_its_form_is_named(fields: Fields, form: Form, words: str) -> None:
    with pytest.raises(ThriftError) as error:
        Reader(encoded(fields)).struct(form)
    assert str(error.value) == words


@pytest.mark.parametrize("locations", [[], [LOCATION]])
def test_struct_of_its_form_is_read_with_the_fields_that_it_does_not_name(locations: list[Fields]) -> None:
    fields: Fields = {1: (LIST, (STRUCT, locations)), 9: (STRUCT, {1: (BINARY, b"x")})}
    assert Reader(encoded(fields)).struct(OFFSET_INDEX) == fields


def test_empty_list_may_state_any_type_of_elements() -> None:
    fields: Fields = {1: (LIST, (I32, []))}
    assert Reader(encoded(fields)).struct(OFFSET_INDEX) == fields


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6, 7, 9])
def test_footer_without_a_field_of_a_column_is_damaged(tmp_path: Path, number: int) -> None:
    data = Path(texts(tmp_path, "1.parquet", 700).path).read_bytes()
    assert ParquetBytes.of(data).rows == 700

    def lacking(footer: Fields) -> None:
        del metadata(footer, 1)[number]

    with pytest.raises(MetadataError, match=f"damaged metadata: the column metadata lacks field {number}"):
        ParquetBytes.of(edited(data, lacking))


def test_page_whose_header_states_no_size_is_damaged(tmp_path: Path) -> None:
    contents = bytearray(Path(texts(tmp_path, "1.parquet", 700).path).read_bytes())
    chunk = ParquetBytes.of(bytes(contents)).chunk(0, 0)
    header = Reader(bytes(contents), chunk.start).struct()
    assert get(header, 3) > 0
    # The field's number is the distance from the one before, in the upper half of its first byte.
    assert contents[chunk.start] == 0x15
    place = contents.index(0x15, contents.index(0x15, chunk.start + 1) + 1)
    contents[place] = 0x45
    with pytest.raises(MetadataError, match="damaged metadata: the page header lacks field 3"):
        ParquetBytes.of(bytes(contents)).chunk(0, 0).pages()


def test_column_that_a_row_group_lacks_is_damaged(tmp_path: Path) -> None:
    data = Path(texts(tmp_path, "1.parquet", 700).path).read_bytes()

    def shorter(footer: Fields) -> None:
        kind, chunks = get(get(footer, 4)[1][0], 1)
        get(footer, 4)[1][0][1] = (LIST, (kind, chunks[:1]))

    with pytest.raises(MetadataError, match="row group 0 has 1 columns"):
        ParquetBytes.of(edited(data, shorter)).chunk(0, 1)


@pytest.mark.parametrize("most_decoded_bytes", [None, 64 << 20])
def test_footer_with_damaged_sizes_of_values_does_not_end_the_process(
    tmp_path: Path, most_decoded_bytes: int | None
) -> None:
    file = texts(tmp_path, "1.parquet", 30_000)

    def other_levels(footer: Fields) -> None:
        metadata(footer, 0)[16] = (STRUCT, {2: (LIST, (I64, [1, 2, 3]))})

    contents = edited(Path(file.path).read_bytes(), other_levels)
    Path(file.path).write_bytes(contents)
    with pytest.raises(WrongInputError, match=r"cannot be read as Parquet: .*histogram"):
        rewrite(task_of(tmp_path, SCHEMA, [replace(file, size_bytes=len(contents))]), most_decoded_bytes)


def test_chunk_of_an_unknown_type_is_read_as_its_column_says(tmp_path: Path) -> None:
    options = {**OPTIONS, "compression": "zstd"}
    rows = [{"id": n, "s": f"text {n}"} for n in range(300)]
    files = [write_file(tmp_path, f"{k}.parquet", SCHEMA, rows, **options) for k in range(2)]
    contents = edited(Path(files[0].path).read_bytes(), lambda f: metadata(f, 1).update({1: (I32, 99)}))
    Path(files[0].path).write_bytes(contents)
    inputs = [replace(files[0], size_bytes=len(contents)), files[1]]
    try:
        found = rewrite(task_of(tmp_path, SCHEMA, inputs))
    except LookupError as why:
        # A traceback would print PyArrow's object of the chunk, and PyArrow would end the process.
        pytest.fail(repr(why), pytrace=False)
    assert (found.record_count, found.proof.difference) == (600, "")


def test_file_without_a_column_of_the_table_has_the_rows_that_its_manifest_states(tmp_path: Path) -> None:
    file = texts(tmp_path, "1.parquet", 10)
    schema = schema_of(field(7, "new", "long"))
    assert rewrite(task_of(tmp_path, schema, [file])).record_count == 10
    wrong = task_of(
        tmp_path, schema, [replace(file, record_count=11)], output_path=str(tmp_path / "2.parquet")
    )
    with pytest.raises(WrongInputError, match="has 10 rows; its manifest states 11"):
        rewrite(wrong)


@pytest.mark.parametrize(
    "damage", [{3: (LIST, (BINARY, []))}, {16: (I32, 1)}, {16: (STRUCT, {1: (BINARY, b"")})}], ids=str
)
def test_damaged_path_or_sizes_of_a_chunk_end_no_splice_by_another_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Fields
) -> None:
    monkeypatch.setattr(page_splice, "_MEAN_FILE_BYTES", 1)
    file = texts(tmp_path, "1.parquet", 30_000)
    contents = edited(Path(file.path).read_bytes(), lambda footer: metadata(footer, 1).update(damage))
    Path(file.path).write_bytes(contents)
    inputs = [replace(file, size_bytes=len(contents))]
    found = page_splice.spliced_result(task_of(tmp_path, SCHEMA, inputs, splice=True, encoding=ENCODING))
    assert found is None or found.record_count == 30_000


@pytest.mark.parametrize(
    ("detail", "words"),
    [
        ((I32, 1), "field 5 of the page header has another type"),
        ((STRUCT, {2: (I32, 0)}), "the data page lacks field 1"),
        ((STRUCT, {1: (BINARY, b""), 2: (I32, 0)}), "field 1 of the data page has another type"),
    ],
    ids=str,
)
def test_page_of_the_output_with_a_damaged_header_is_damaged(detail: tuple[int, Any], words: str) -> None:
    header = encoded({1: (I32, 0), 2: (I32, 8), 3: (I32, 8), 5: detail})
    page: Fields = {1: (I64, 0), 2: (I32, len(header)), 3: (I64, 0)}
    with pytest.raises(MetadataError, match=f"damaged metadata: {words}"):
        page_index._values_stated(Chunk(memoryview(header), {}), page)
