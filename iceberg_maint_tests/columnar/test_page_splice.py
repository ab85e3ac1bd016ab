"""A task that may splice has the output and the metrics of one that may not, or is encoded."""

from __future__ import annotations

import gc
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from iceberg_maint.columnar import encode
from iceberg_maint.columnar.check.file_proof import Comparison
from iceberg_maint.columnar.encode import _batch_rows
from iceberg_maint.columnar.parquet.parquet_metadata import MetadataError, ParquetBytes, get
from iceberg_maint.columnar.parquet.thrift import BINARY, I64, LIST, TRUE, Struct
from iceberg_maint.columnar.rewrite import rewrite
from iceberg_maint.columnar.splice import page_splice
from iceberg_maint.columnar.splice.splice_file import SpliceWriter
from iceberg_maint.columnar.splice.splice_rules import spliceable
from iceberg_maint.columnar.storage import FileRange
from iceberg_maint.columnar.task import (
    DeleteKind,
    DeleteReference,
    Encoding,
    InputFile,
    RewriteResult,
    RewriteTask,
    WrongInputError,
)
from iceberg_maint_tests.columnar.test_splice import column_index, edited, statistics
from iceberg_maint_tests.support.columnar.tables import field, schema_of, task_of, write_file

pytestmark = pytest.mark.seconds

SCHEMA = schema_of(
    field(1, "id", "long", required=True),
    field(2, "price", "double"),
    field(3, "text", "string"),
    field(4, "flag", "string"),
    field(5, "at", "timestamptz"),
    field(6, "amount", "decimal(20, 2)"),
)
ROWS = 10_000
PLAIN: dict[str, Any] = {
    "compression": "zstd",
    "use_dictionary": ["flag"],
    "write_page_index": True,
    "max_rows_per_page": 20_000,
    "data_page_size": 1 << 22,
}


def row(n: int) -> dict[str, Any]:
    return {
        "id": n * 7919 % 1_000_003,
        "price": float("nan") if n % 5 == 0 else n / 7,
        "text": None if n % 9 == 0 else f"żółć {sha256(str(n).encode()).hexdigest()}",
        "flag": f"f{n % 3}",
        "at": n * 1_000_003,
        "amount": n - 5000,
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[InputFile]:
    folder = tmp_path_factory.mktemp("splice")
    return [
        write_file(folder, f"{k}.parquet", SCHEMA, [row(n) for n in range(k * ROWS, (k + 1) * ROWS)], **PLAIN)
        for k in range(3)
    ]


@pytest.fixture
def task(tmp_path: Path, files: list[InputFile]) -> RewriteTask:
    return task_of(tmp_path, SCHEMA, files, splice=True)


def without_splice(task: RewriteTask) -> RewriteResult:
    return rewrite(replace(task, splice=False, output_path=task.output_path + ".encoded"))


def test_spliced_output_has_the_rows_and_the_metrics_of_an_encoded_one(task: RewriteTask) -> None:
    found, expected = rewrite(task), without_splice(task)
    assert found.spliced == (1, 2, 3, 5, 6)
    # NaN is equal to NaN in pandas only.
    assert pq.read_table(found.path).to_pandas().equals(pq.read_table(expected.path).to_pandas())
    assert pq.ParquetFile(found.path).schema == pq.ParquetFile(expected.path).schema
    sizes = found.metrics.column_sizes
    assert replace(found.metrics, column_sizes=expected.metrics.column_sizes) == replace(
        expected.metrics, split_offsets=found.metrics.split_offsets
    )
    assert sizes.keys() == expected.metrics.column_sizes.keys()
    assert found.metrics.split_offsets == (4,)
    assert found.proof == expected.proof
    assert found.record_count == 3 * ROWS
    assert found.size_bytes == Path(found.path).stat().st_size
    for result in (found, expected):
        assert result.digest == sha256(Path(result.path).read_bytes()).hexdigest()


def test_only_columns_whose_dictionary_does_not_overflow_are_encoded_a_page_at_a_time() -> None:
    rows = pa.table({"s": pa.array(["ab", "cd", "ab"]).dictionary_encode()})
    size = rows.column(0).chunk(0).dictionary.nbytes
    assert _batch_rows(rows, Encoding(dictionary_bytes=size, page_row_limit=7)) == 7
    assert _batch_rows(rows, Encoding(dictionary_bytes=size - 1, page_row_limit=7)) is None
    assert _batch_rows(rows.cast(pa.schema([("s", pa.string())])), Encoding()) is None
    assert _batch_rows(rows.append_column("t", rows.column(0)), Encoding()) is None


def test_spliced_output_has_row_groups_of_the_stated_size(task: RewriteTask) -> None:
    size = sum(f.size_bytes for f in task.inputs)
    found = rewrite(replace(task, encoding=Encoding(row_group_bytes=size * 2 // 3)))
    metadata = pq.read_metadata(found.path)
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [2 * ROWS, ROWS]
    assert found.spliced == (1, 2, 3, 5, 6)
    assert len(found.metrics.split_offsets) == 2
    expected = without_splice(task)
    assert pq.read_table(found.path).to_pandas().equals(pq.read_table(expected.path).to_pandas())
    assert found.metrics.lower_bounds == expected.metrics.lower_bounds
    assert found.metrics.nan_value_counts == {2: 3 * ROWS // 5}


def test_large_input_is_spliced_a_row_group_at_a_time(
    task: RewriteTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    hold = FileRange.hold

    def counted(data: FileRange) -> pa.Buffer:
        found = hold(data)
        held.append(sum(d.contents is not None for d in gc.get_objects() if isinstance(d, FileRange)))
        return found

    monkeypatch.setattr(FileRange, "hold", counted)
    size = sum(f.size_bytes for f in task.inputs)
    found = rewrite(replace(task, memory_limit_bytes=4 * size))
    expected = without_splice(task)
    assert found.spliced == (1, 2, 3, 5, 6)
    assert max(held) == 1
    assert len(found.metrics.split_offsets) == 3
    assert pq.read_table(found.path).to_pandas().equals(pq.read_table(expected.path).to_pandas())
    sizes, offsets = expected.metrics.column_sizes, expected.metrics.split_offsets
    assert replace(found.metrics, column_sizes=sizes, split_offsets=offsets) == expected.metrics
    assert found.proof == expected.proof


@pytest.mark.parametrize("compares", ["value_difference", "statistics_difference"])
def test_encoded_columns_of_a_splice_are_compared(
    task: RewriteTask, monkeypatch: pytest.MonkeyPatch, compares: str
) -> None:
    compared = getattr(Comparison, compares)
    monkeypatch.setattr(Comparison, compares, lambda *rows: compared(*rows) or "planted")
    assert page_splice.spliced_result(task) is None
    assert not Path(task.output_path).exists()


def test_columns_that_cannot_be_read_by_name_are_encoded_beside_spliced_ones(tmp_path: Path) -> None:
    names = {"id": "id", "a.b": "flag", "a": "text"}
    schema = schema_of(
        field(1, "id", "long", required=True), field(3, "a.b", "string"), field(4, "a", "string")
    )
    rows = [{name: row(n)[of] for name, of in names.items()} for n in range(ROWS)]
    plain = {**PLAIN, "use_dictionary": ["a.b"]}
    inputs = [write_file(tmp_path, f"{k}.parquet", schema, rows, **plain) for k in range(2)]
    found = rewrite(task_of(tmp_path, schema, inputs, splice=True))
    assert (found.spliced, found.proof.difference) == ((1, 4), "")
    assert pq.read_table(found.path).equals(pq.read_table([f.path for f in inputs]))


def test_texts_too_long_for_a_column_index_are_encoded_beside_spliced_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_splice, "_MEAN_FILE_BYTES", 1)
    schema = schema_of(field(1, "id", "long", required=True), field(2, "body", "string"))
    rows = [{"id": row(n)["id"], "body": "ż" * 3000 + str(n % 7)} for n in range(ROWS)]
    file = write_file(tmp_path, "long.parquet", schema, rows, **{**PLAIN, "use_dictionary": ["body"]})
    found = rewrite(task_of(tmp_path, schema, [file], splice=True))
    assert (found.spliced, found.proof.difference) == ((1,), "")
    assert pq.read_table(found.path).equals(pq.read_table(file.path))
    column = pq.read_metadata(found.path).row_group(0).column(1)
    assert (column.has_column_index, column.has_offset_index) == (False, True)


def test_one_column_is_decoded_at_a_time(task: RewriteTask, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[list[str]] = []
    encoded = encode.write_group

    def noted(writer: pq.ParquetWriter, rows: pa.Table) -> None:
        names.append(rows.schema.names)
        encoded(writer, rows)

    monkeypatch.setattr(encode, "write_group", noted)
    partitioned = tuple(replace(f, constants={5: "1970-01-01T00:00:00.000007+00:00"}) for f in task.inputs)
    assert rewrite(replace(task, inputs=partitioned)).spliced == (1, 2, 3, 6)
    assert names == [["flag"], ["at"]]


FLOATS: dict[str, tuple[Callable[[int], float | None], bool]] = {
    "finite": (lambda n: n / 7 - 100, True),
    "some NaN": (lambda n: float("nan") if n % 3 == 0 else n / 7, True),
    "a page of NaN": (lambda n: float("nan") if n < ROWS // 2 else n / 7, False),
    "nothing but NaN": (lambda _: float("nan"), False),
    "nothing but NULL": (lambda _: None, True),
    "NULL and NaN": (lambda n: None if n % 2 else float("nan"), False),
    "positive zeros": (lambda n: 0.0 if n % 2 else n / 7, True),
    "negative zeros": (lambda n: -0.0 if n % 2 else -n / 7, True),
    "both zeros": (lambda n: -0.0 if n % 2 else 0.0, True),
    "a page of each zero": (lambda n: -0.0 if n < ROWS // 2 else 0.0, True),
    "a page of each zero, the positive one first": (lambda n: 0.0 if n < ROWS // 2 else -0.0, True),
    "infinities": (lambda n: float("inf") if n % 2 else float("-inf"), True),
}
"""Values of floats by row, and whether Arrow states bounds of each page, without which nothing is copied."""


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("name", FLOATS)
def test_metrics_of_copied_floats_are_those_of_encoded_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    monkeypatch.setattr(page_splice, "_MEAN_FILE_BYTES", 1)
    value, is_copied = FLOATS[name]
    schema = schema_of(field(1, "id", "long"), field(2, "v", kind))
    rows = [{"id": n * 7919 % 1_000_003, "v": value(n)} for n in range(ROWS)]
    options = {**PLAIN, "use_dictionary": False, "max_rows_per_page": ROWS // 2}
    file = write_file(tmp_path, "f.parquet", schema, rows, **options)
    monkeypatch.setattr(spliceable, "__defaults__", (1,))
    task = task_of(tmp_path, schema, [file, file], splice=True)
    found, expected = rewrite(task), without_splice(task)
    assert found.spliced == ((1, 2) if is_copied else (1,))
    assert found.proof == expected.proof
    assert found.proof.difference == ""
    sizes, offsets = expected.metrics.column_sizes, expected.metrics.split_offsets
    assert replace(found.metrics, column_sizes=sizes, split_offsets=offsets) == expected.metrics
    stored = [pq.read_table(r.path).column("v").combine_chunks() for r in (found, expected)]
    assert stored[0].buffers()[1] == stored[1].buffers()[1] or name == "nothing but NULL"


def test_row_lineage_is_encoded_beside_spliced_columns(task: RewriteTask) -> None:
    inputs = tuple(replace(f, first_row_id=1000 * i) for i, f in enumerate(task.inputs))
    lineage = replace(task, inputs=inputs, format_version=3, keep_row_lineage=True)
    found, expected = rewrite(lineage), without_splice(lineage)
    assert found.spliced == (1, 2, 3, 5, 6)
    assert pq.read_metadata(found.path).metadata == pq.read_metadata(expected.path).metadata
    ids = pq.read_table(found.path, columns=["_row_id"]).column(0).to_pylist()
    assert (ids[0], ids[ROWS - 1], ids[ROWS], ids[-1]) == (0, ROWS - 1, 1000, 2000 + ROWS - 1)


@pytest.mark.parametrize("least_group_bytes", [1, 1 << 30], ids=["kept row groups", "merged"])
def test_nulls_of_row_lineage_that_files_have_are_inherited_beside_copied_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least_group_bytes: int
) -> None:
    # A copy-on-write update keeps the ids of a file's rows and leaves out the sequence numbers of those that it changes.
    monkeypatch.setattr(page_splice, "LEAST_GROUP_BYTES", least_group_bytes)
    rows = [
        {
            **row(n),
            "_row_id": None if n % 3 else 9000 + n,
            "_last_updated_sequence_number": None if n % 2 else 3,
        }
        for n in range(ROWS)
    ]
    options = {**PLAIN, "use_dictionary": False, "max_rows_per_page": ROWS}
    file = write_file(tmp_path, "kept.parquet", SCHEMA, rows, lineage=True, **options)
    inputs = tuple(replace(file, first_row_id=first, data_sequence_number=7) for first in (100, 50_000))
    found = rewrite(task_of(tmp_path, SCHEMA, inputs, splice=True, format_version=3, keep_row_lineage=True))
    assert (found.spliced, found.proof.difference) == ((1, 2, 3, 4, 5, 6), "")
    columns = pq.read_table(found.path, columns=["_row_id", "_last_updated_sequence_number"])
    assert columns.column(0).to_pylist() == [
        first + n if n % 3 else 9000 + n for first in (100, 50_000) for n in range(ROWS)
    ]
    assert columns.column(1).to_pylist() == [7 if n % 2 else 3 for n in range(ROWS)] * 2


@pytest.mark.parametrize("least_group_bytes", [1, 1 << 30], ids=["kept row groups", "merged"])
def test_partition_value_of_the_manifest_is_encoded_beside_copied_columns(
    task: RewriteTask, monkeypatch: pytest.MonkeyPatch, least_group_bytes: int
) -> None:
    monkeypatch.setattr(page_splice, "LEAST_GROUP_BYTES", least_group_bytes)
    of_manifest = {5: "1970-01-01T00:00:00.000007+00:00"}
    result = rewrite(replace(task, inputs=tuple(replace(f, constants=of_manifest) for f in task.inputs)))
    assert {1, 2, 3} <= set(result.spliced) <= {1, 2, 3, 4, 6}
    assert pq.read_table(result.path)["at"].cast("int64").unique().to_pylist() == [7]
    assert (result.metrics.lower_bounds[5], result.metrics.upper_bounds[5]) == (b"\x07" + bytes(7),) * 2


def with_delete(task: RewriteTask, tmp_path: Path) -> RewriteTask:
    from iceberg_maint_tests.support.columnar.vectors import vector_blob

    blob = vector_blob([0, 5])
    path = tmp_path / "dv.puffin"
    path.write_bytes(blob)
    reference = DeleteReference(DeleteKind.DELETION_VECTOR, str(path), len(blob), 0, 2)
    return replace(task, inputs=(replace(task.inputs[0], deletes=(reference,)), *task.inputs[1:]))


ENCODED: dict[str, Callable[[RewriteTask, Path], RewriteTask]] = {
    "deletes": with_delete,
    "another codec": lambda task, _: replace(task, encoding=Encoding(codec="snappy", level=None)),
    "little memory": lambda task, _: replace(task, memory_limit_bytes=1 << 20),
    "row groups smaller than a file": lambda task, _: replace(
        task, encoding=Encoding(row_group_bytes=100_000)
    ),
    "a promoted column": lambda task, _: replace(
        task, schema=task.schema.replace('"decimal(20, 2)"', '"decimal(22, 2)"').replace("text", "texts")
    ),
}


@pytest.mark.parametrize("name", [n for n in ENCODED if n != "a promoted column"])
def test_task_that_does_not_qualify_is_encoded(task: RewriteTask, tmp_path: Path, name: str) -> None:
    found = rewrite(ENCODED[name](task, tmp_path))
    assert found.spliced == ()
    assert found.proof.difference == ""
    assert found.record_count == 3 * ROWS - (2 if name == "deletes" else 0)


def test_file_with_deleted_positions_is_not_spliced(task: RewriteTask) -> None:
    positions = b64encode(BitMap64([1, 2]).serialize()).decode()
    found = rewrite(
        replace(task, inputs=(replace(task.inputs[0], deleted_positions=positions), *task.inputs[1:]))
    )
    assert (found.spliced, found.proof.difference) == ((), "")
    assert (found.record_count, found.proof.rows_deleted) == (3 * ROWS - 2, 2)


def test_deleted_rows_of_a_table_with_plain_columns_only_are_dropped(tmp_path: Path) -> None:
    schema = schema_of(field(1, "id", "long", required=True), field(3, "text", "string"))
    rows = [{"id": row(n)["id"], "text": row(n)["text"]} for n in range(ROWS)]
    file = write_file(tmp_path, "plain.parquet", schema, rows, **{**PLAIN, "use_dictionary": False})
    task = task_of(tmp_path, schema, [file], splice=True)
    assert rewrite(task).spliced == (1, 3)
    found = rewrite(replace(with_delete(task, tmp_path), output_path=f"{task.output_path}.second"))
    assert (found.spliced, found.record_count, found.proof.rows_deleted) == ((), ROWS - 2, 2)


def test_column_that_was_promoted_is_encoded_and_one_that_was_renamed_is_spliced(
    task: RewriteTask, tmp_path: Path
) -> None:
    found = rewrite(ENCODED["a promoted column"](task, tmp_path))
    assert found.spliced == (1, 2, 3, 5)
    assert pq.ParquetFile(found.path).schema_arrow.names == ["id", "price", "texts", "flag", "at", "amount"]
    before = pq.read_table([f.path for f in task.inputs]).column("text")
    assert pq.read_table(found.path).column("texts").equals(before)


def test_output_that_differs_from_its_sources_is_deleted_and_encoded(
    task: RewriteTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[bool] = []

    def check(*_: object) -> str:
        checked.append(Path(task.output_path).exists())
        return "a difference"

    monkeypatch.setattr(page_splice, "difference", check)
    found = rewrite(task)
    assert checked == [True]
    assert (found.spliced, found.proof.difference, found.record_count) == ((), "", 3 * ROWS)


def test_error_of_a_splice_leaves_no_output_and_the_task_is_encoded(
    task: RewriteTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: SpliceWriter) -> None:
        raise MetadataError("planted")

    monkeypatch.setattr(SpliceWriter, "close", broken)
    found = rewrite(task)
    assert (found.spliced, found.record_count) == ((), 3 * ROWS)


def test_interrupted_splice_leaves_no_output(task: RewriteTask, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: SpliceWriter) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SpliceWriter, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rewrite(task)
    assert not Path(task.output_path).exists()


@pytest.mark.parametrize("damage", ["levels", "size"])
def test_page_whose_header_states_what_arrow_ignores_is_encoded(tmp_path: Path, damage: str) -> None:
    """No checksum covers a header. DuckDB refuses these."""
    schema = schema_of(field(1, "id", "long"))
    options = {**PLAIN, "compression": "none", "use_dictionary": False}
    files = [
        write_file(tmp_path, f"{k}.parquet", schema, [{"id": n} for n in range(30_000)], **options)
        for k in range(2)
    ]
    contents = bytearray(Path(files[1].path).read_bytes())
    chunk = ParquetBytes.of(pa.py_buffer(bytes(contents))).chunk(0, 0)
    start = get(get(chunk.offset_index or {}, 1)[1][0], 1)
    # Thrift writes a difference of field numbers and a type, then twice the number: the levels are RLE (3).
    place = contents.index(b"\x15\x06\x15\x06", start) + 3 if damage == "levels" else start + 3
    task = task_of(tmp_path, schema, files, splice=True, encoding=Encoding("uncompressed"))
    assert rewrite(task).spliced == (1,)
    contents[place] ^= 16
    Path(files[1].path).write_bytes(contents)
    result = rewrite(replace(task, output_path=f"{task.output_path}.damaged"))
    assert (result.proof.difference, result.spliced) == ("", ())
    assert pq.read_table(result.path).column("id").to_pylist() == [*range(30_000), *range(30_000)]


def test_page_that_was_damaged_in_its_source_is_never_spliced_where_it_has_a_checksum(
    tmp_path: Path, task: RewriteTask
) -> None:
    rows = [row(n) for n in range(ROWS)]
    plain = {**PLAIN, "compression": "none"}
    file = write_file(tmp_path, "d.parquet", SCHEMA, rows, **plain, write_page_checksum=True)
    one = replace(task, inputs=(file,), encoding=Encoding(codec="uncompressed", level=None))
    spliced = page_splice.spliced_result(one)
    assert spliced is not None
    Path(spliced.path).unlink()
    data = bytearray(Path(file.path).read_bytes())
    [page] = ParquetBytes.of(bytes(data)).chunk(0, 0).pages()
    # The lowest bit of an id in the middle: the page can be decoded, and its bounds stay.
    data[page.offset + page.size - 8 * (ROWS // 2)] ^= 1
    Path(file.path).write_bytes(data)
    assert page_splice.spliced_result(one) is None
    assert not Path(task.output_path).exists()


def damaged(file: InputFile, edit: Callable[[bytes], bytes], folder: Path) -> InputFile:
    path = folder / "damaged.parquet"
    path.write_bytes(edit(Path(file.path).read_bytes()))
    return replace(file, path=str(path), size_bytes=path.stat().st_size)


def long_value(number: int) -> bytes:
    return number.to_bytes(8, "little", signed=True)


def statistics_edit(edit: Callable[[Struct], object]) -> Callable[[bytes], bytes]:
    return lambda data: edited(data, lambda footer: edit(statistics(footer, 0)))


WRONG_STATISTICS: dict[str, Callable[[bytes], bytes]] = {
    "an upper bound below a row": statistics_edit(lambda s: s.update({5: (BINARY, long_value(900_000))})),
    "a lower bound above a row": statistics_edit(lambda s: s.update({6: (BINARY, long_value(100_000))})),
    "a null that no row has": statistics_edit(lambda s: s.update({3: (I64, 1)})),
    "a lower bound of a page above a row": column_index(
        0, lambda index: index.update({2: (LIST, (BINARY, [long_value(500_000)]))})
    ),
    "an upper bound of a page below a row": column_index(
        0, lambda index: index.update({3: (LIST, (BINARY, [long_value(500_000)]))})
    ),
    "a null in a page that has none": column_index(0, lambda index: index.update({5: (LIST, (I64, [1]))})),
    "a page of nulls only": column_index(0, lambda index: index.update({1: (LIST, (TRUE, [1]))})),
}


@pytest.mark.parametrize("name", WRONG_STATISTICS)
def test_column_whose_source_states_wrong_statistics_is_encoded(
    task: RewriteTask, tmp_path: Path, name: str
) -> None:
    file = damaged(task.inputs[1], WRONG_STATISTICS[name], tmp_path)
    wrong = replace(task, inputs=(file,))
    assert page_splice.spliced_result(wrong) is None
    assert not Path(task.output_path).exists()
    found, expected = rewrite(wrong), without_splice(replace(task, inputs=(task.inputs[1],)))
    assert (found.spliced, found.proof.difference) == ((), "")
    assert replace(found.metrics, split_offsets=()) == replace(expected.metrics, split_offsets=())


@pytest.mark.parametrize(
    "name", ["an upper bound below a row", "a lower bound above a row", "a null that no row has"]
)
def test_wrong_statistics_of_a_column_without_metrics_are_found(
    task: RewriteTask, tmp_path: Path, name: str
) -> None:
    file = damaged(task.inputs[1], WRONG_STATISTICS[name], tmp_path)
    assert page_splice.spliced_result(replace(task, inputs=(file,), metrics_modes={1: "none"})) is None


def test_page_without_a_checksum_that_cannot_be_decoded_is_not_spliced(
    task: RewriteTask, tmp_path: Path
) -> None:
    def edit(data: bytes) -> bytes:
        [page] = ParquetBytes.of(data).chunk(0, 2).pages()
        frame = data.index(bytes.fromhex("28b52ffd"), page.offset)
        return data[:frame] + bytes(4) + data[frame + 4 :]

    broken = replace(task, inputs=(task.inputs[0], damaged(task.inputs[1], edit, tmp_path), task.inputs[2]))
    assert page_splice.spliced_result(broken) is None
    with pytest.raises(WrongInputError, match=r"damaged\.parquet cannot be read as Parquet"):
        rewrite(broken)


def test_task_and_result_keep_the_splice_in_json(task: RewriteTask) -> None:
    assert RewriteTask.from_json(task.to_json()) == task
    result = rewrite(task)
    assert RewriteResult.from_json(result.to_json()) == result


@pytest.mark.parametrize(("megabytes", "spliced"), [(3, ()), (5, (1,))])
def test_column_that_takes_more_memory_decoded_than_the_task_has_is_not_decoded_at_once(
    tmp_path: Path, megabytes: int, spliced: tuple[int, ...]
) -> None:
    schema = schema_of(field(1, "t", "string"), field(2, "n", "long"))
    # 200,000 equal numbers have 1.6 MB in memory and some bytes in the file.
    rows = [{"t": sha256(str(n).encode()).hexdigest()[:2], "n": 7} for n in range(200_000)]
    file = write_file(tmp_path, "1.parquet", schema, rows, **{**PLAIN, "use_dictionary": ["n"]})
    task = task_of(tmp_path, schema, [file], splice=True, memory_limit_bytes=megabytes * 1_000_000)
    found = rewrite(task)
    assert (found.spliced, found.proof.difference, found.record_count) == (spliced, "", 200_000)
