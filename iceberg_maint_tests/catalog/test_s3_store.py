"""S3 through boto3: pages, bulk deletion, and the cases that stay with Arrow."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import pytest
from botocore.utils import parse_timestamp
from pyiceberg.io.pyarrow import PyArrowFileIO

from iceberg_maint.catalog.approved_io import open_store
from iceberg_maint.catalog.arrow_store import ArrowStore
from iceberg_maint.catalog.s3_store import S3Store, _parsed_time
from iceberg_maint.errors import IcebergMaintError, RefusedError
from iceberg_maint_tests.support.servers.object_server import Bucket, listing, object_server

pytestmark = pytest.mark.seconds

ROOT = "s3://bucket/w/t"


@pytest.fixture(scope="module")
def endpoint_and_bucket() -> Iterator[tuple[str, Bucket]]:
    with object_server() as served:
        yield served


@pytest.fixture
def properties(endpoint_and_bucket: tuple[str, Bucket]) -> dict[str, Any]:
    endpoint, bucket = endpoint_and_bucket
    bucket.objects.clear()
    bucket.requests.clear()
    bucket.stubborn, bucket.token, bucket.bulk_requests = frozenset(), None, 0
    bucket.is_conditional, bucket.ignores_conditions = True, False
    bucket.listed, bucket.conflicts = None, 0
    return {
        "s3.endpoint": endpoint,
        "s3.access-key-id": "key",
        "s3.secret-access-key": "a secret",
        "s3.region": "us-east-1",
    }


@pytest.fixture
def bucket(endpoint_and_bucket: tuple[str, Bucket]) -> Bucket:
    return endpoint_and_bucket[1]


@pytest.fixture
def store(properties: dict[str, Any]) -> S3Store:
    found = open_store(PyArrowFileIO(properties), ROOT)
    assert isinstance(found, S3Store)
    return found


def test_listing_takes_one_request_per_page_and_is_that_of_arrow(store: S3Store, bucket: Bucket) -> None:
    for n in range(120):
        bucket.objects[f"w/t/data/p={n}/a b+é&%2F"] = (b"x" * n, time.time())
    for key in ("w/t//1", "w/t/d//2", "w/tt/3", "w/t/marker/"):
        bucket.objects[key] = (b"", time.time())
    arrow = sorted(ArrowStore(store._resolve).list(ROOT), key=lambda f: f.path)
    bucket.requests.clear()
    listed = list(store.list(ROOT))
    assert sorted(listed, key=lambda f: f.path) == arrow
    assert len(listed) == 122
    assert bucket.requests == ["GET"] * 3  # pages of 50 objects


@pytest.mark.parametrize("text", ["2026-01-01T00:00:00.123Z", "Thu, 01 Jan 2026 00:00:00 GMT", "20260101"])
def test_time_of_an_answer_is_that_of_boto3(text: str) -> None:
    assert _parsed_time(text) == parse_timestamp(text)


def test_listing_after_any_path_is_the_rest_of_the_listing(store: S3Store, bucket: Bucket) -> None:
    for n in range(120):
        bucket.objects[f"w/t/data/p={n}/a b+é&%2F"] = (b"x" * n, time.time())
    bucket.objects["w/t/d//2"] = (b"", time.time())
    listed = list(store.list(ROOT))
    for at in (0, 1, 49, 50, 77, 120):
        assert list(store.list_after(ROOT, listed[at].path)) == listed[at + 1 :]


def test_listing_asks_for_the_next_page_when_it_is_needed(store: S3Store, bucket: Bucket) -> None:
    for n in range(120):
        bucket.objects[f"w/t/{n:03d}"] = (b"x", time.time())
    assert len(list(islice(store.list(f"{ROOT}/"), 50))) == 50
    assert bucket.requests == ["GET"]


def test_listing_goes_on_after_many_empty_pages(store: S3Store, bucket: Bucket) -> None:
    bucket.objects["w/t/a"] = (b"x", time.time())
    tokens = [f"<NextContinuationToken>{n}</NextContinuationToken>" for n in range(10)]
    empty = [
        f"<ListBucketResult><IsTruncated>true</IsTruncated>{token}</ListBucketResult>" for token in tokens
    ]
    bucket.listed = lambda bucket, query: (200, empty.pop() if empty else listing(bucket, {"prefix": "w/t"}))
    assert [file.path for file in store.list(ROOT)] == [f"{ROOT}/a"]


def page(key: str, token: int | None) -> tuple[int, str]:
    """A page of one object. A next page has the token."""
    content = f"<Contents><Key>w/t/{key}</Key><Size>1</Size><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>"
    following = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    truncated = str(token is not None).lower()
    return (
        200,
        f"<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{content}{following}</ListBucketResult>",
    )


@pytest.mark.parametrize("keys", ["aaaa", "aaaabbbbc"])
def test_listing_skips_up_to_three_repeated_pages_in_a_row(store: S3Store, bucket: Bucket, keys: str) -> None:
    pages = [page(key, number if number < len(keys) else None) for number, key in enumerate(keys, 1)]
    bucket.listed = lambda _bucket, _query: pages.pop(0)
    assert [file.path for file in store.list(ROOT)] == [f"{ROOT}/{key}" for key in dict.fromkeys(keys)]


def test_listing_that_repeats_a_page_four_times_in_a_row_ends_with_a_code(
    store: S3Store, bucket: Bucket
) -> None:
    pages = [*(page("a", number) for number in range(1, 6)), page("b", None)]
    bucket.listed = lambda _bucket, _query: pages.pop(0)
    with pytest.raises(IcebergMaintError, match=r"^ICM-153 .*does not end"):
        list(store.list(ROOT))
    assert len(pages) == 1


@pytest.mark.parametrize(
    ("status", "code", "listed"),
    [(400, "InvalidArgument", 60), (400, "ExpiredToken", 50), (404, "NoSuchBucket", 50)],
)
def test_only_a_token_that_is_too_old_is_replaced_by_the_last_key(
    store: S3Store, bucket: Bucket, status: int, code: str, listed: int
) -> None:
    for n in range(60):
        bucket.objects[f"w/t/{n:03d}"] = (b"x", time.time())
    answers = [(200, ""), (status, f"<Error><Code>{code}</Code></Error>"), (200, "")]

    def answer(bucket: Bucket, query: dict[str, str]) -> tuple[int, str]:
        now, error = answers.pop(0)
        return now, error or listing(bucket, query)

    bucket.listed = answer
    found: list[str] = []
    with suppress(IcebergMaintError, OSError):
        found += (file.path for file in store.list(ROOT))
    assert len(found) == listed


def test_bulk_deletion_returns_the_files_that_the_store_did_not_delete(
    store: S3Store, bucket: Bucket
) -> None:
    keys = ["w/t/a&b", "w/t/é +%2F", "w/t/stubborn"]
    for key in (*keys, "w/t/other"):
        bucket.objects[key] = (b"x", time.time())
    bucket.stubborn = frozenset(["w/t/stubborn"])
    paths = [f"s3://bucket/{key}" for key in keys]
    assert store.delete_bulk(paths) == {"s3://bucket/w/t/stubborn"}
    assert sorted(bucket.objects) == ["w/t/other", "w/t/stubborn"]
    assert bucket.bulk_requests == 1


def test_bulk_deletion_that_fails_as_a_whole_returns_all_files(store: S3Store, bucket: Bucket) -> None:
    bucket.objects["w/t/a"] = (b"x", time.time())
    bucket.token = "another"
    assert store.delete_bulk([f"{ROOT}/a"]) == {f"{ROOT}/a"}
    assert list(bucket.objects) == ["w/t/a"]


def test_bulk_deletion_of_two_buckets_deletes_nothing(store: S3Store, bucket: Bucket) -> None:
    paths = ["s3://bucket/w/t/a", "s3://other/w/t/b"]
    assert store.delete_bulk(paths) == set(paths)
    assert bucket.requests == []


def test_denied_listing_is_refused(store: S3Store, bucket: Bucket) -> None:
    bucket.token = "another"
    with pytest.raises(RefusedError) as refusal:
        list(store.list(ROOT))
    assert refusal.value.code == "ICM-125"


def test_next_page_is_requested_with_the_newest_credentials(
    properties: dict[str, Any], bucket: Bucket
) -> None:
    io = PyArrowFileIO({**properties, "s3.session-token": "first"})
    store = open_store(io, ROOT)
    for n in range(60):
        bucket.objects[f"w/t/{n:03d}"] = (b"x", time.time())
    bucket.token = "first"
    listing = store.list(ROOT)
    assert len(list(islice(listing, 50))) == 50
    bucket.token = io.properties["s3.session-token"] = "second"
    assert len(list(listing)) == 10


@pytest.mark.parametrize(
    ("changed", "style"),
    [
        ({}, "path"),
        ({"s3.force-virtual-addressing": "true"}, "virtual"),
        ({"s3.endpoint": None}, "auto"),
        ({"s3.endpoint": None, "s3.force-virtual-addressing": "true"}, "virtual"),
    ],
)
def test_buckets_are_in_the_path_only_at_an_endpoint_of_its_own(
    properties: dict[str, Any], changed: dict[str, str | None], style: str
) -> None:
    given = {key: value for key, value in (properties | changed).items() if value is not None}
    store = open_store(PyArrowFileIO(given), ROOT)
    assert isinstance(store, S3Store)
    assert store._client().meta.config.s3["addressing_style"] == style


@pytest.mark.parametrize(
    "more", [{"s3.role-arn": "arn:aws:iam::1:role/r"}, {"s3.anonymous": "true"}, {"s3.proxy-uri": "http://p"}]
)
def test_property_that_boto3_is_not_given_leaves_the_store_to_arrow(
    properties: dict[str, Any], more: dict[str, str]
) -> None:
    assert type(open_store(PyArrowFileIO({**properties, **more}), ROOT)) is ArrowStore


def test_object_that_appears_between_look_and_write_is_not_replaced(
    store: S3Store, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes append to an audit log: one has just lost its lease. S3 itself must refuse the second one."""
    path = f"{ROOT}/1.json"
    store.create(path, [b"first"])
    monkeypatch.setattr(store, "stat", lambda _path: None)
    with pytest.raises(FileExistsError):
        store.create(path, [b"second"])
    assert bucket.objects["w/t/1.json"][0] == b"first"


def test_create_that_is_sent_again_finds_its_own_object(store: S3Store, bucket: Bucket) -> None:
    """boto3 sends a request again whose answer was lost."""
    bucket.objects["w/t/1.json"] = (b"ab", time.time())
    store.create(f"{ROOT}/1.json", [b"a", b"b"])
    for other in (b"a", b"abc", b""):
        with pytest.raises(FileExistsError):
            store.create(f"{ROOT}/1.json", [other])


def test_create_beside_another_request_is_tried_again(store: S3Store, bucket: Bucket) -> None:
    bucket.conflicts = 2
    store.create(f"{ROOT}/1.json", [b"a"])
    assert (bucket.objects["w/t/1.json"][0], bucket.requests.count("PUT")) == (b"a", 3)


def test_create_beside_three_other_requests_writes_nothing(store: S3Store, bucket: Bucket) -> None:
    bucket.conflicts = 3
    with pytest.raises(FileNotFoundError):
        store.create(f"{ROOT}/1.json", [b"a"])
    assert (bucket.objects, bucket.requests.count("PUT")) == ({}, 3)


@pytest.mark.parametrize("is_conditional", [True, False])
@pytest.mark.parametrize("lines", [0, 1, 3])
def test_create_writes_small_and_large_objects_with_and_without_conditions(
    is_conditional: bool, lines: int, store: S3Store, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iceberg_maint.catalog.s3_store._LARGEST_PUT_BYTES", 25)
    bucket.is_conditional = is_conditional
    content = [bytes([65 + n]) * 10 for n in range(lines)]
    store.create(f"{ROOT}/a b.json", iter(content))
    assert bucket.objects["w/t/a b.json"][0] == b"".join(content)
    with pytest.raises(FileExistsError):
        store.create(f"{ROOT}/a b.json", [b"other"])


def test_create_replaces_nothing_in_a_store_that_ignores_the_condition(
    store: S3Store, bucket: Bucket
) -> None:
    bucket.ignores_conditions = True
    bucket.objects["w/t/1.json"] = (b"first", time.time())
    with pytest.raises(FileExistsError):
        store.create(f"{ROOT}/1.json", [b"other"])
    assert bucket.objects["w/t/1.json"][0] == b"first"


def test_create_without_the_right_to_write_is_refused(store: S3Store, bucket: Bucket) -> None:
    bucket.denied = frozenset({"put"})
    try:
        with pytest.raises(RefusedError, match="ICM-125"):
            store.create(f"{ROOT}/1.json", [b"x"])
    finally:
        bucket.denied = frozenset()
