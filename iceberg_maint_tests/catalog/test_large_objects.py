"""Objects that S3 copies in parts only."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from pyarrow.fs import S3FileSystem

from iceberg_maint.catalog import arrow_store
from iceberg_maint.catalog.arrow_store import ArrowStore
from iceberg_maint_tests.support.servers.object_server import Bucket, object_server

DATA = bytes(range(256)) * 40


@pytest.fixture
def bucket_and_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Bucket, ArrowStore]]:
    monkeypatch.setattr(arrow_store, "_LARGEST_COPY_BYTES", 1000)
    monkeypatch.setattr(arrow_store, "_COPY_CHUNK_BYTES", 999)
    with object_server() as (endpoint, bucket):
        system = S3FileSystem(
            endpoint_override=endpoint, access_key="k", secret_key="s", region="us-east-1", scheme="http"
        )
        bucket.largest_copy = 1000
        bucket.objects["t/large"] = (DATA, time.time())
        yield bucket, ArrowStore(lambda path: (system, path.removeprefix("s3://")))


def test_object_too_large_for_one_copy_is_moved_by_parts(bucket_and_store: tuple[Bucket, ArrowStore]) -> None:
    bucket, store = bucket_and_store
    store.move("s3://b/t/large", "s3://b/trash/large")
    assert bucket.objects["trash/large"][0] == DATA
    assert "t/large" not in bucket.objects


def test_object_that_one_copy_may_hold_is_not_moved_by_parts(
    bucket_and_store: tuple[Bucket, ArrowStore],
) -> None:
    bucket, store = bucket_and_store
    bucket.largest_copy = 999
    bucket.objects["t/small"] = (DATA[:1000], time.time())
    with pytest.raises(OSError, match="t/small"):
        store.move("s3://b/t/small", "s3://b/trash/small")
    assert "t/small" in bucket.objects
    assert "trash/small" not in bucket.objects


def test_copy_by_parts_of_another_size_leaves_the_object_and_no_copy(
    bucket_and_store: tuple[Bucket, ArrowStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket, store = bucket_and_store
    copy = arrow_store._copy_by_parts
    monkeypatch.setattr(
        arrow_store, "_copy_by_parts", lambda system, old, new, size: copy(system, old, new, size + 1)
    )
    with pytest.raises(OSError, match="the copy of b/t/large has 10240 bytes, the file 10241"):
        store.move("s3://b/t/large", "s3://b/trash/large")
    assert bucket.objects["t/large"][0] == DATA
    assert "trash/large" not in bucket.objects
