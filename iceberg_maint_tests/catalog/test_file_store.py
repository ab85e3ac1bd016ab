"""The two stores on a local disk: the operating system's, and Arrow's as for an object store."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem as FsspecLocal
from pyarrow.fs import (
    FileInfo,
    FileSelector,
    FileSystem,
    FileType,
    FSSpecHandler,
    LocalFileSystem,
    PyFileSystem,
    S3FileSystem,
    SubTreeFileSystem,
)
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from iceberg_maint.catalog.approved_io import open_store
from iceberg_maint.catalog.arrow_store import ArrowStore, file_system
from iceberg_maint.catalog.local_store import LocalStore
from iceberg_maint.core.removal.orphan_rules import TRASH
from iceberg_maint.errors import IcebergMaintError, RefusedError
from iceberg_maint.ports.storage import Store, StoredFile
from iceberg_maint_tests.support.servers.object_server import Bucket, object_server

Place = tuple[Store, str]


def bucket_of(system: FileSystem) -> Callable[[str], tuple[FileSystem, str]]:
    return lambda location: (system, location.removeprefix("s3://bucket/"))


@pytest.fixture(params=["local", "uri", "arrow", "fsspec"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A store and the location of its empty folder."""
    if request.param == "arrow":
        return ArrowStore(bucket_of(SubTreeFileSystem(str(tmp_path), LocalFileSystem()))), "s3://bucket/w"
    if request.param == "fsspec":
        system = SubTreeFileSystem(str(tmp_path), PyFileSystem(FSSpecHandler(FsspecLocal())))
        return ArrowStore(bucket_of(system)), "s3://bucket/w"
    return LocalStore(), str(tmp_path) if request.param == "local" else f"file://{tmp_path}"


def test_listing_finds_every_file_in_the_spelling_asked_for(place: Place) -> None:
    store, root = place
    names = ["t/1", "t/a/2", "t/a b/é/3", "t/p=a%2Fb/4", "u/5"]
    for n, name in enumerate(names):
        store.create(f"{root}/{name}", [b"x" * n])
    found = {f.path: f.size_bytes for f in store.list(f"{root}/t/")}
    assert found == {f"{root}/{name}": n for n, name in enumerate(names[:4])}
    assert list(store.list(f"{root}/none")) == []


@pytest.fixture
def bucket() -> Iterator[tuple[ArrowStore, Bucket]]:
    """A store on Arrow's own S3 file system, and the objects behind it."""
    with object_server() as (endpoint, bucket):
        system = S3FileSystem(
            access_key="key", secret_key="a secret", region="us-east-1", endpoint_override=endpoint
        )
        yield ArrowStore(lambda location: (system, location.removeprefix("s3://"))), bucket


def test_key_with_an_empty_segment_is_listed_once_by_one_request(bucket: tuple[ArrowStore, Bucket]) -> None:
    store, objects = bucket
    for key in ("w/t/1", "w/t//2", "w/t/d//3", "w/t/d/4", "w/tt/5"):
        objects.objects[key] = (b"x", time.time())
    listed = sorted(f.path for f in islice(store.list("s3://bucket/w/t"), 20))
    assert listed == [f"s3://bucket/w/t/{key}" for key in ("/2", "1", "d//3", "d/4")]
    assert objects.requests == ["GET"]


def test_listing_of_many_folders_takes_one_request_per_page(bucket: tuple[ArrowStore, Bucket]) -> None:
    store, objects = bucket
    for n in range(120):
        objects.objects[f"w/t/data/p={n}/f"] = (b"x", time.time())
    assert sum(1 for _ in store.list("s3://bucket/w/t/")) == 120
    assert objects.requests == ["GET"] * 3  # pages of 50 objects


def test_requests_of_the_clock_are_those_that_arrow_needs(bucket: tuple[ArrowStore, Bucket]) -> None:
    store, objects = bucket
    objects.objects["w/t/1"] = (b"x", time.time())
    store.now_ms("s3://bucket/w/t")
    # A multipart upload of three requests, its time; Arrow looks for the file, deletes it, and keeps its folder.
    assert objects.requests == ["POST", "PUT", "POST", "HEAD", "HEAD", "DELETE", "PUT"]
    objects.requests.clear()
    store.delete("s3://bucket/w/t/1")
    assert objects.requests == ["HEAD", "DELETE", "PUT"]


class FlatNames:
    """A file system whose listing of one folder returns objects only, as Arrow's for GCS."""

    type_name = "gcs"

    def __init__(self, *paths: str) -> None:
        self._paths = paths

    def get_file_info(self, selector: FileSelector) -> list[FileInfo]:
        below = {p: p.removeprefix(f"{selector.base_dir}/") for p in self._paths}
        return [
            FileInfo(path, type=FileType.File, size=1, mtime=0.0)
            for path, name in below.items()
            if name != path and (selector.recursive or "/" not in name)
        ]


def test_file_below_a_folder_without_an_object_of_its_own_is_listed() -> None:
    system = FlatNames("bucket/t/metadata/v1.json", "bucket/t/data/p=1/a", "bucket/t/b", "bucket/u/c")
    store = ArrowStore(lambda path: (system, path.removeprefix("gs://")))
    listed = sorted(f.path for f in store.list("gs://bucket/t"))
    assert listed == ["gs://bucket/t/b", "gs://bucket/t/data/p=1/a", "gs://bucket/t/metadata/v1.json"]


def test_file_written_is_read_listed_and_deleted(place: Place) -> None:
    store, root = place
    store.create(f"{root}/a/b", [b"one\n", b"two\n", b"three"])
    assert store.read(f"{root}/a/b") == b"one\ntwo\nthree"
    assert list(store.read_lines(f"{root}/a/b")) == [b"one\n", b"two\n", b"three"]
    found = store.stat(f"{root}/a/b")
    assert found is not None
    assert found == StoredFile(f"{root}/a/b", 13, found.modified_ms)
    assert abs((found.modified_ms or 0) - time.time() * 1000) < 60_000
    store.delete(f"{root}/a/b")
    store.delete(f"{root}/a/b")
    assert store.stat(f"{root}/a/b") is None
    with pytest.raises(FileNotFoundError):
        store.read(f"{root}/a/b")


def test_nothing_is_ever_replaced(place: Place) -> None:
    store, root = place
    store.create(f"{root}/a", [b"a"])
    store.create(f"{root}/b", [b"b"])
    with pytest.raises(FileExistsError):
        store.create(f"{root}/a", [b"new"])
    with pytest.raises(FileExistsError):
        store.move(f"{root}/a", f"{root}/b")
    assert (store.read(f"{root}/a"), store.read(f"{root}/b")) == (b"a", b"b")


def test_move_keeps_the_bytes(place: Place) -> None:
    store, root = place
    store.create(f"{root}/a", [b"bytes"])
    store.move(f"{root}/a", f"{root}/trash/x/a")
    assert store.stat(f"{root}/a") is None
    assert store.read(f"{root}/trash/x/a") == b"bytes"
    with pytest.raises(FileNotFoundError):
        store.move(f"{root}/a", f"{root}/c")


def test_clock_is_the_stores_and_leaves_nothing(place: Place, tmp_path: Path) -> None:
    store, root = place
    assert abs(store.now_ms(f"{root}/t") - time.time() * 1000) < 60_000
    assert list(store.list(root)) == []


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious").write_bytes(b"x")
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "folder").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "t" / "file").symlink_to(tmp_path / "elsewhere" / "precious")
    assert list(LocalStore().list(str(tmp_path / "t"))) == []
    assert LocalStore().stat(str(tmp_path / "t" / "file")) is None


@pytest.mark.parametrize("folder", ["data", TRASH])
def test_folder_that_is_a_link_is_refused_by_what_lists_creates_moves_and_deletes(
    tmp_path: Path, folder: str
) -> None:
    outside, table = tmp_path / "outside", tmp_path / "warehouse" / "t"
    (outside / "below").mkdir(parents=True)
    precious, file = outside / "precious", table / "file"
    precious.write_bytes(b"x")
    table.mkdir(parents=True)
    file.write_bytes(b"y")
    (table / folder).symlink_to(outside)
    store, link = LocalStore(f"file://{table}"), f"file://{table}/{folder}"
    calls: list[Callable[[], object]] = [
        lambda: list(store.list(link)),
        lambda: store.create(f"{link}/new", [b"z"]),
        lambda: store.move(f"file://{file}", f"{link}/below/file"),
        lambda: store.move(f"{link}/precious", f"file://{table}/taken"),
        lambda: store.delete(f"{link}/precious"),
        lambda: store.tidy(f"{link}/below"),
    ]
    for call in calls:
        with pytest.raises(RefusedError, match=f"ICM-112 .* leads through the symbolic link '{folder}'"):
            call()
    assert sorted(p.name for p in outside.iterdir()) == ["below", "precious"]
    assert sorted(p.name for p in table.iterdir()) == sorted([folder, "file"])


def test_missing_root_that_several_writers_need_at_once_is_created(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as writers:
        for n in range(30):
            store, together = LocalStore(f"{tmp_path}/{n}/a/b/c"), Barrier(8)

            def write(name: int, store: LocalStore = store, together: Barrier = together) -> None:
                together.wait()
                store.create(f"{store.root}/{name}", [b"z"])

            list(writers.map(write, range(8)))
            assert len(list(store.list(store.root))) == 8


def test_link_above_the_root_is_followed(tmp_path: Path) -> None:
    (tmp_path / "disk" / "t" / "data").mkdir(parents=True)
    (tmp_path / "warehouse").symlink_to(tmp_path / "disk")
    store = LocalStore(f"{tmp_path}/warehouse/t")
    store.create(f"{tmp_path}/warehouse/t/data/new", [b"z"])
    assert [f.path for f in store.list(f"{tmp_path}/warehouse/t")] == [f"{tmp_path}/warehouse/t/data/new"]


def test_trash_of_a_declared_prefix_outside_the_root_that_is_a_link_is_refused(tmp_path: Path) -> None:
    for name in ("t", "prefix", "outside"):
        (tmp_path / name).mkdir()
    (tmp_path / "prefix" / TRASH).symlink_to(tmp_path / "outside")
    with pytest.raises(RefusedError, match="ICM-112"):
        LocalStore(f"{tmp_path}/t").create(f"{tmp_path}/prefix/{TRASH}/marks/new", [b"z"])
    assert list((tmp_path / "outside").iterdir()) == []


def test_what_is_created_in_the_trash_is_for_this_user_only_and_what_is_restored_is_as_the_umask_says(
    tmp_path: Path,
) -> None:
    before = os.umask(0)
    try:
        store = LocalStore(str(tmp_path))
        store.create(f"{tmp_path}/{TRASH}/marks/new", [b"z"])
        store.move(f"{tmp_path}/{TRASH}/marks/new", f"{tmp_path}/data/p=a/file")
    finally:
        os.umask(before)
    modes = {str(p.relative_to(tmp_path)): oct(p.stat().st_mode & 0o777) for p in tmp_path.rglob("*")}
    private, shared = "0o700", "0o777"
    assert modes == {
        TRASH: private,
        f"{TRASH}/marks": private,
        "data": shared,
        "data/p=a": shared,
        "data/p=a/file": "0o600",
    }


def test_file_name_that_is_no_unicode_is_listed_and_moved(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff")).write_bytes(b"x")
    [found] = LocalStore().list(str(tmp_path))
    LocalStore().move(found.path, f"{tmp_path}/moved")
    assert (tmp_path / "moved").read_bytes() == b"x"


class _Denied:
    """A file system that answers as S3 does without permission."""

    def __init__(self, error: OSError) -> None:
        self._error = error

    def get_file_info(self, _: object) -> object:
        raise self._error


@pytest.mark.parametrize(
    "error", [PermissionError(13, "denied"), OSError("AWS Error ACCESS_DENIED during ListObjectsV2")]
)
def test_denied_access_is_refused(error: OSError) -> None:
    store = ArrowStore(lambda path: (_Denied(error), path))  # type: ignore[arg-type, return-value]
    with pytest.raises(RefusedError, match=r"ICM-125 access to s3://b/t is denied"):
        list(store.list("s3://b/t"))


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (OSError("AWS Error SLOW_DOWN"), IcebergMaintError, r"ICM-133 the store of s3://b/t/1 .*SLOW_DOWN"),
        (OSError("AWS Error UNKNOWN"), OSError, "UNKNOWN"),
    ],
)
def test_other_failure_of_a_store_is_not_taken_for_denied_access(
    error: OSError, kind: type[Exception], text: str
) -> None:
    store = ArrowStore(lambda path: (_Denied(error), path))  # type: ignore[arg-type, return-value]
    with pytest.raises(kind, match=text):
        store.stat("s3://b/t/1")


def test_store_of_a_location_is_that_of_its_file_io(tmp_path: Path) -> None:
    assert isinstance(open_store(PyArrowFileIO(), f"file://{tmp_path}"), LocalStore)
    assert isinstance(open_store(PyArrowFileIO(), str(tmp_path)), LocalStore)
    arrow = open_store(
        PyArrowFileIO({"s3.region": "eu-west-1", "s3.endpoint": "http://127.0.0.1:1"}), "s3://b/t"
    )
    assert isinstance(arrow, ArrowStore)
    system, path = arrow._resolve("s3://b/t/1")
    assert (system.type_name, path) == ("s3", "b/t/1")


class AzureLike(FsspecLocal):  # type: ignore[misc]
    """Has the time of a file where adlfs has it, and keeps the first listing of a folder until it is told otherwise."""

    protocol = ("abfss",)
    kept: dict[str, Any] | None = None

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        found = super().info(path)
        found["last_modified"] = datetime.fromtimestamp(found.pop("mtime"), UTC)
        return dict(found)

    def find(self, path: str, **given: Any) -> dict[str, Any]:
        if self.kept is None:
            self.kept = {name: self.info(name) for name in super().find(path, **given)}
        return self.kept

    def invalidate_cache(self, path: str | None = None) -> None:
        self.kept = None


def test_fsspec_file_system_of_azure_gives_times_and_new_listings(tmp_path: Path) -> None:
    (tmp_path / "1").write_bytes(b"x")
    os.utime(tmp_path / "1", (1_700_000_000, 1_700_000_000))
    io, system = FsspecFileIO({}), AzureLike()
    io.get_fs = lambda *_: system  # type: ignore[method-assign, assignment]
    store = ArrowStore(lambda path: file_system(io, f"abfss://c@a{path}"))
    system._strip_protocol = lambda path: path.removeprefix("abfss://c@a")  # type: ignore[method-assign]
    assert [f.modified_ms for f in store.list(str(tmp_path))] == [1_700_000_000_000]
    (tmp_path / "2").write_bytes(b"x")
    assert {Path(f.path).name for f in store.list(str(tmp_path))} == {"1", "2"}
    stored = store.stat(str(tmp_path / "1"))
    assert stored is not None
    assert stored.modified_ms == 1_700_000_000_000


def test_missing_folder_is_not_created_by_a_look_or_a_deletion(tmp_path: Path) -> None:
    store = LocalStore()
    assert list(store.list(f"{tmp_path}/gone")) == []
    store.delete(f"{tmp_path}/gone/1")
    store.tidy(f"{tmp_path}/gone/below")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("location", ["/w/t", "file:///w/t"])
def test_path_without_a_scheme_is_one_of_the_local_disk(location: str) -> None:
    assert file_system(PyArrowFileIO({}), location) == (LocalFileSystem(), "/w/t")


def test_key_of_an_object_store_keeps_each_character() -> None:
    io, asked = PyArrowFileIO({}), list[tuple[str, str | None]]()

    def fs_by_scheme(scheme: str, bucket: str | None) -> FileSystem:
        asked.append((scheme, bucket))
        return LocalFileSystem()

    io.fs_by_scheme = fs_by_scheme
    assert file_system(io, "S3://bucket/w/a?b#c\nd") == (LocalFileSystem(), "bucket/w/a?b#c\nd")
    assert asked == [("s3", "bucket")]


def test_fsspec_file_io_is_asked_for_the_file_system_of_the_host() -> None:
    io, asked = FsspecFileIO({}), list[tuple[str, str | None]]()

    def get_fs(scheme: str, host: str | None) -> FsspecLocal:
        asked.append((scheme, host))
        return FsspecLocal()

    io.get_fs = get_fs  # type: ignore[method-assign, assignment]
    for location in ("abfss://c@a.net/w/t", "disk:///w/t"):
        file_system(io, location)
    assert asked == [("abfss", "a.net"), ("disk", None)]


def test_fsspec_file_io_is_listed_by_its_file_system(tmp_path: Path) -> None:
    io = FsspecFileIO({})
    io._scheme_to_fs["disk"] = lambda _: FsspecLocal()
    store = open_store(io, f"disk://{tmp_path}")
    assert isinstance(store, ArrowStore)
    system, _ = store._resolve(f"disk://{tmp_path}/1")
    assert system.type_name.startswith("py::fsspec+")


def test_folder_without_files_is_tidied_away_and_one_with_files_stays(place: Place) -> None:
    store, root = place
    store.create(f"{root}/trash/a/1", [b"1"])
    store.create(f"{root}/trash/b/c/2", [b"2"])
    store.tidy(f"{root}/trash")
    assert sum(1 for _ in store.list(root)) == 2
    for name in ("a/1", "b/c/2"):
        store.delete(f"{root}/trash/{name}")
    store.tidy(f"{root}/trash")
    store.tidy(f"{root}/trash")
    store.tidy(f"{root}/none")
    assert list(store.list(root)) == []


def test_move_of_a_missing_file_is_reported(place: Place) -> None:
    store, root = place
    with pytest.raises(FileNotFoundError):
        store.move(f"{root}/none", f"{root}/other")


@pytest.mark.parametrize("step", ["create", "stat"])
@pytest.mark.parametrize("ends", [KeyboardInterrupt(), OSError("the store does not answer")])
def test_clock_without_an_answer_ends_as_it_did_though_nothing_can_be_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, step: str, ends: BaseException
) -> None:
    """A failure to tidy up that took an interrupt's place would have the pass go on."""

    def fail(_store: LocalStore, _path: str, _lines: object = ()) -> None:
        raise ends

    def stay(_store: LocalStore, _path: str) -> None:
        raise OSError("gone away")

    monkeypatch.setattr(LocalStore, step, fail)
    monkeypatch.setattr(LocalStore, "delete", stay)
    with pytest.raises(type(ends)) as raised:
        LocalStore().now_ms(str(tmp_path))
    assert raised.value is ends


def test_clock_without_an_answer_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(_store: LocalStore, _path: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalStore, "stat", fail)
    with pytest.raises(KeyboardInterrupt):
        LocalStore().now_ms(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
