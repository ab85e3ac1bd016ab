"""The columnar engine on S3: a real HTTP server, Arrow's client."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_maint.columnar.rewrite import rewrite
from iceberg_maint.columnar.storage import Storage, local_path
from iceberg_maint.columnar.task import DeleteKind, DeleteReference, InputFile, RewriteTask, WrongInputError
from iceberg_maint.core.outcomes.failures import is_environment, python_causes
from iceberg_maint_tests.support.columnar.tables import field, schema_of, task_of, write_file
from iceberg_maint_tests.support.columnar.vectors import vector_blob
from iceberg_maint_tests.support.servers.object_server import Bucket, object_server

TEXT = schema_of(field(1, "t", "string"))
PLAIN: dict[str, Any] = {
    "compression": "zstd",
    "use_dictionary": False,
    "write_page_index": True,
    "max_rows_per_page": 20_000,
    "data_page_size": 1 << 22,
}
LONG = schema_of(field(1, "n", "long"))
HOSTILE = "lake/t/data/p=a b%2F+&ü#1?x/00000.parquet"


@pytest.fixture
def s3() -> Iterator[tuple[dict[str, str], Bucket]]:
    """The properties of a FileIO, and its bucket."""
    with object_server() as (endpoint, bucket):
        yield (
            {
                "s3.endpoint": endpoint,
                "s3.access-key-id": "key",
                "s3.secret-access-key": "secret",
                "client.region": "us-east-1",
            },
            bucket,
        )


def put(bucket: Bucket, file: InputFile, key: str) -> InputFile:
    """The local file as an object."""
    bucket.objects[key] = (Path(file.path).read_bytes(), time.time())
    return replace(file, path=f"s3://bucket/{key}")


def remote_task(tmp_path: Path, io: dict[str, str], bucket: Bucket, rows: int = 3) -> RewriteTask:
    """Two files with keys that URLs would cut, and an output."""
    files = [
        write_file(tmp_path, f"{k}.parquet", LONG, [{"n": 10 * k + n} for n in range(rows)]) for k in (1, 2)
    ]
    inputs = [put(bucket, f, HOSTILE.replace("00000", f"{n:05d}")) for n, f in enumerate(files)]
    return replace(
        task_of(tmp_path, LONG, inputs), output_path="s3://bucket/lake/t/data/o #%20.parquet", io=io
    )


@pytest.mark.parametrize("memory", [1 << 30, 1000], ids=["table", "streaming"])
def test_rewrite_on_s3_reads_and_writes_the_keys_as_they_are(
    memory: int, tmp_path: Path, s3: tuple[dict[str, str], Bucket]
) -> None:
    io, bucket = s3
    task = remote_task(tmp_path, io, bucket)
    result = rewrite(replace(task, memory_limit_bytes=memory))
    assert (result.proof.difference, result.record_count) == ("", 6)
    contents, _ = bucket.objects["lake/t/data/o #%20.parquet"]
    assert pq.read_table(pa.BufferReader(contents)).column("n").to_pylist() == [10, 11, 12, 20, 21, 22]
    assert result.size_bytes == len(contents)


def test_deletion_vector_on_s3_is_read_by_its_range(
    tmp_path: Path, s3: tuple[dict[str, str], Bucket]
) -> None:
    io, bucket = s3
    task = remote_task(tmp_path, io, bucket)
    blob = vector_blob([0, 2])
    bucket.objects["lake/t/data/dv.puffin"] = (b"PFA1" + blob + b"rest", time.time())
    vector = DeleteReference(
        DeleteKind.DELETION_VECTOR, "s3a://bucket/lake/t/data/dv.puffin", len(blob), 4, 2
    )
    first = replace(task.inputs[0], deletes=(vector,))
    result = rewrite(replace(task, inputs=(first, task.inputs[1])))
    assert (result.proof.rows_deleted, result.record_count, result.proof.difference) == (2, 4, "")


def test_pages_are_spliced_on_s3(tmp_path: Path, s3: tuple[dict[str, str], Bucket]) -> None:
    io, bucket = s3
    rows = [{"t": sha256(str(n).encode()).hexdigest()} for n in range(10_000)]
    files = [write_file(tmp_path, f"{k}.parquet", TEXT, rows, **PLAIN) for k in (1, 2)]
    inputs = [put(bucket, f, f"t/{n}.parquet") for n, f in enumerate(files)]
    task = replace(
        task_of(tmp_path, TEXT, inputs), output_path="s3://bucket/t/out.parquet", io=io, splice=True
    )
    result = rewrite(task)
    assert (result.spliced, result.proof.difference, result.record_count) == ((1,), "", 20_000)


def test_file_that_is_gone_is_named_and_leaves_no_output(
    tmp_path: Path, s3: tuple[dict[str, str], Bucket]
) -> None:
    io, bucket = s3
    task = remote_task(tmp_path, io, bucket)
    del bucket.objects[HOSTILE]
    with pytest.raises(WrongInputError, match=r"p=a b%2F.* does not exist\.$"):
        rewrite(task)
    assert not [key for key in bucket.objects if key.startswith("lake/t/data/o")]


def test_output_of_a_task_that_fails_is_deleted(
    tmp_path: Path, s3: tuple[dict[str, str], Bucket], monkeypatch: pytest.MonkeyPatch
) -> None:
    io, bucket = s3
    task = remote_task(tmp_path, io, bucket)
    damaged = bytearray(bucket.objects[HOSTILE.replace("00000", "00001")][0])
    damaged[8:24] = bytes(16)
    bucket.objects[HOSTILE.replace("00000", "00001")] = (bytes(damaged), time.time())
    with pytest.raises(WrongInputError, match="cannot be read as Parquet"):
        rewrite(replace(task, memory_limit_bytes=100))
    assert not [key for key in bucket.objects if key.startswith("lake/t/data/o")]


@pytest.mark.parametrize("memory", [1 << 30, 1000], ids=["table", "streaming"])
@pytest.mark.parametrize("which", ["input", "output"])
def test_answer_that_is_shorter_than_the_object_is_a_failure_of_the_store(
    which: str, memory: int, tmp_path: Path, s3: tuple[dict[str, str], Bucket]
) -> None:
    io, bucket = s3
    task = remote_task(tmp_path, io, bucket)
    key = HOSTILE if which == "input" else task.output_path.removeprefix("s3://bucket/")
    bucket.short = frozenset([key])
    with pytest.raises(
        OSError, match=r"NETWORK_CONNECTION: the store answered with less than \d+ bytes of "
    ) as error:
        rewrite(replace(task, memory_limit_bytes=memory))
    assert is_environment(python_causes(error.value))
    assert not [key for key in bucket.objects if key.startswith("lake/t/data/o")]


def test_part_of_a_deletion_vector_is_no_deletion_vector(
    tmp_path: Path, s3: tuple[dict[str, str], Bucket]
) -> None:
    io, bucket = s3
    task = remote_task(tmp_path, io, bucket)
    blob = vector_blob([0, 2])
    bucket.objects["lake/t/data/dv.puffin"] = (b"PFA1" + blob + b"rest", time.time())
    bucket.short = frozenset(["lake/t/data/dv.puffin"])
    path = "s3://bucket/lake/t/data/dv.puffin"
    first = replace(
        task.inputs[0], deletes=(DeleteReference(DeleteKind.DELETION_VECTOR, path, len(blob), 4, 2),)
    )
    with pytest.raises(OSError, match=f"less than {len(blob)} bytes of {path}"):
        rewrite(replace(task, inputs=(first, task.inputs[1])))


def test_credentials_that_the_store_denies_are_an_error_without_them(
    tmp_path: Path, s3: tuple[dict[str, str], Bucket]
) -> None:
    io, bucket = s3
    task = remote_task(tmp_path, io, bucket)
    bucket.token = "of another"
    with pytest.raises(OSError, match=r"ACCESS_DENIED|403") as error:
        rewrite(task)
    assert "secret" not in str(error.value)


def test_location_on_another_store_is_an_error() -> None:
    with pytest.raises(OSError, match="gs://b/k is neither on a local file system nor on S3"):
        Storage({}).read("gs://b/k")


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("file:/lake/c=a%2Fb/x.parquet", "/lake/c=a%2Fb/x.parquet"),
        ("file:///lake/x#1.parquet", "/lake/x#1.parquet"),
        ("/lake/x.parquet", "/lake/x.parquet"),
    ],
)
def test_local_path_takes_the_name_literally(location: str, path: str) -> None:
    assert str(local_path(location)) == path
