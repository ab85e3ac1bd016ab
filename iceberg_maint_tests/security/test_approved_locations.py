"""Hostile tables: their metadata names files outside the approved locations, and none of these is reached."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField

from iceberg_maint.catalog.adapter import PyIcebergCatalog
from iceberg_maint.catalog.approved_io import ApprovedFileIO, guarded_properties, open_store
from iceberg_maint.core.model.ids import PartitionKey, TableId
from iceberg_maint.core.model.location import ApprovedLocations
from iceberg_maint.errors import RefusedError
from iceberg_maint_tests.support.catalog.table_files import File, ManifestFile, TableFiles, register, spec
from iceberg_maint_tests.support.servers.object_server import object_server
from iceberg_maint_tests.support.servers.rest_server import RestServer, serving

pytestmark = pytest.mark.seconds

TABLE = TableId.parse("lake.db.hostile")
SCHEMA = Schema(NestedField(1, "id", IntegerType(), required=False))
SPEC = spec(0)
ALL = (PartitionKey("__all__"),)

_accesses: list[str] = []


def _record(event: str, args: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(args[0], (str, bytes, Path)):
        _accesses.append(str(args[0]))
    elif event in ("socket.connect", "os.listdir", "os.scandir", "os.remove", "os.rename"):
        _accesses.append(f"{event} {args}")


sys.addaudithook(_record)


@contextmanager
def no_access_to(folder: Path) -> Iterator[None]:
    """Fails if the block opens, lists, moves or deletes anything below the folder, or opens a connection."""
    _accesses.clear()
    yield
    assert [a for a in _accesses if str(folder) in a or a.startswith("socket.connect")] == []


@dataclass(frozen=True)
class Lake:
    """An approved folder with the catalog, and a folder of somebody else beside it."""

    approved: Path
    foreign: Path

    @property
    def database(self) -> Path:
        return self.approved / "catalog.db"

    def catalog(self) -> PyIcebergCatalog:
        plain = {"type": "sql", "uri": f"sqlite:///{self.database}", "warehouse": self.approved.as_uri()}
        return PyIcebergCatalog(
            "lake", guarded_properties(plain, ApprovedLocations((self.approved.as_uri(),)))
        )

    def table(self) -> TableFiles:
        return TableFiles(self.approved / "t", SCHEMA, [SPEC])

    def file(self, name: str = "a.parquet") -> str:
        return f"{self.approved.as_uri()}/t/data/{name}"

    def spellings(self) -> dict[str, Callable[[str], str]]:
        """Locations outside the approved folder, each as a function of the path below it."""
        approved, foreign = self.approved, self.foreign
        return {
            "beside": lambda below: f"{foreign.as_uri()}/{below}",
            "path": lambda below: f"{foreign}/{below}",
            "one-slash": lambda below: f"file:{foreign}/{below}",
            "dots": lambda below: f"{approved.as_uri()}/../{foreign.name}/{below}",
            "inner-dots": lambda below: f"{approved.as_uri()}/t/../../{foreign.name}/{below}",
            "encoded-dots": lambda below: f"{approved.as_uri()}/%2e%2e/{foreign.name}/{below}",
            "half-encoded": lambda below: f"{approved.as_uri()}/.%2E/{foreign.name}/{below}",
            "backslash": lambda below: f"{approved.as_uri()}/..\\{foreign.name}/{below}",
            "prefix": lambda below: f"{approved.as_uri()}-evil/{below}",
            "case": lambda below: f"{approved.as_uri().upper().replace('FILE', 'file')}/{below}",
            "bucket": lambda below: f"s3://other-bucket{approved}/{below}",
            "s3a": lambda below: f"s3a://other-bucket/{below}",
            "user": lambda below: f"s3://approved@other-bucket/{below}",
            "gcs": lambda below: f"gs://other-bucket/{below}",
            "azure": lambda below: f"abfss://c@account.dfs.core.windows.net/{below}",
            "http": lambda below: f"http://127.0.0.1:9/{below}",
            "host": lambda below: f"file://host{approved}/{below}",
            "link": lambda below: f"{approved.as_uri()}/link/{below}",
            "control": lambda below: f"{approved.as_uri()}/\n{below}",
        }


def commit(table: TableFiles, *manifests: ManifestFile) -> None:
    number = len(table.snapshots) + 1
    table.commit(manifests, snapshot_id=number, sequence_number=number, timestamp_ms=number)


def manifest(path: str, **more: Any) -> ManifestFile:
    return ManifestFile((File(path),), SPEC, 1, 1, **more)


def pointer(lake: Lake, at: Callable[[str], str]) -> None:
    table = lake.table()
    commit(table, manifest(lake.file()))
    table.publish()
    shutil.copytree(lake.approved / "t", lake.foreign / "t", dirs_exist_ok=True)
    register(lake.database, "db.hostile", at("t/metadata/00001.metadata.json"))


def manifest_list(lake: Lake, at: Callable[[str], str]) -> None:
    table = lake.table()
    commit(table, manifest(lake.file()))
    shutil.copytree(lake.approved / "t", lake.foreign / "t", dirs_exist_ok=True)
    table.snapshots[0]["manifest-list"] = at("t/metadata/snap-1.avro")
    table.register(lake.database, "db.hostile")


def older_manifest_list(lake: Lake, at: Callable[[str], str]) -> None:
    table = lake.table()
    commit(table, manifest(lake.file()))
    commit(table, manifest(lake.file("b.parquet")))
    shutil.copytree(lake.approved / "t", lake.foreign / "t", dirs_exist_ok=True)
    table.snapshots[0]["manifest-list"] = at("t/metadata/snap-1.avro")
    table.register(lake.database, "db.hostile")


def manifest_path(lake: Lake, at: Callable[[str], str]) -> None:
    table = lake.table()
    entry = table.write_manifest(manifest(lake.file()), "m.avro")
    shutil.copytree(lake.approved / "t", lake.foreign / "t", dirs_exist_ok=True)
    wrong = {"manifest_path": at("t/metadata/m.avro"), "manifest_length": entry["manifest_length"]}
    commit(table, manifest(lake.file(), wrong=wrong))
    table.register(lake.database, "db.hostile")


def data_file(lake: Lake, at: Callable[[str], str]) -> None:
    table = lake.table()
    commit(table, manifest(at("t/data/secret.parquet")))
    table.register(lake.database, "db.hostile")


def delete_file(lake: Lake, at: Callable[[str], str]) -> None:
    table = lake.table()
    deletes = ManifestFile((File(at("t/data/d.parquet"), content=1),), SPEC, 1, 1, is_deletes=True)
    commit(table, manifest(lake.file()), deletes)
    table.register(lake.database, "db.hostile")


def location(lake: Lake, at: Callable[[str], str]) -> None:
    table = lake.table()
    commit(table, manifest(lake.file()))
    document = table.document
    table.document = lambda: document() | {"location": at("t")}  # type: ignore[method-assign]
    table.register(lake.database, "db.hostile")


def write_property(name: str) -> Callable[[Lake, Callable[[str], str]], None]:
    def make(lake: Lake, at: Callable[[str], str]) -> None:
        table = replace(lake.table(), properties={name: at("t/data")})
        commit(table, manifest(lake.file()))
        table.register(lake.database, "db.hostile")

    return make


PLACES: dict[str, Callable[[Lake, Callable[[str], str]], None]] = {
    "pointer": pointer,
    "manifest-list": manifest_list,
    "older-manifest-list": older_manifest_list,
    "manifest": manifest_path,
    "data-file": data_file,
    "delete-file": delete_file,
    "location": location,
    "write.data.path": write_property("write.data.path"),
    "write.metadata.path": write_property("write.metadata.path"),
    "write.object-storage.path": write_property("write.object-storage.path"),
    "write.folder-storage.path": write_property("write.folder-storage.path"),
    "write.location-provider.impl": write_property("write.location-provider.impl"),
}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return made_lake(tmp_path)


def made_lake(folder: Path) -> Lake:
    """Makes both folders, and a link from the approved one to the other."""
    made = Lake(folder / "approved", folder / "foreign")
    made.approved.mkdir(parents=True)
    made.foreign.mkdir()
    (made.approved / "link").symlink_to(made.foreign)
    return made


@pytest.mark.parametrize(
    "spelling", ["file://{}", "file:{}", "file:////{}", "{}", "file://{}/x/../../approved"]
)
def test_table_inside_the_approved_locations_is_read(lake: Lake, spelling: str) -> None:
    table, file = lake.table(), f"{spelling.format(lake.approved)}/t/data/a.parquet"
    commit(table, manifest(file))
    table.register(lake.database, "db.hostile")
    catalog = lake.catalog()

    state = catalog.pin(TABLE)

    assert [f.path for f in catalog.live_files(state, ALL)] == [file]


def test_file_below_a_link_within_the_approved_locations_is_read(tmp_path: Path) -> None:
    lake = made_lake(tmp_path / "disk")
    (tmp_path / "mounted").symlink_to(tmp_path / "disk")
    test_table_inside_the_approved_locations_is_read(
        replace(lake, approved=tmp_path / "mounted" / "approved"), "file://{}"
    )


@pytest.mark.parametrize("place", PLACES)
def test_table_that_names_a_foreign_location_is_refused_and_nothing_there_is_reached(
    tmp_path: Path, place: str
) -> None:
    for number, (spelling, at) in enumerate(Lake(tmp_path, tmp_path).spellings().items()):
        lake = made_lake(tmp_path / str(number))
        at = lake.spellings()[spelling]
        PLACES[place](lake, at)
        catalog = lake.catalog()
        with no_access_to(lake.foreign), pytest.raises(RefusedError, match="ICM-155") as refused:
            catalog.live_files(catalog.pin(TABLE), ALL)
        assert "approved_locations" in str(refused.value), spelling


def test_access_to_a_watched_folder_fails_the_watch(lake: Lake) -> None:
    secret = lake.foreign / "secret.parquet"
    secret.write_bytes(b"secret")
    with pytest.raises(AssertionError), no_access_to(lake.foreign):
        secret.read_bytes()
    with pytest.raises(AssertionError), no_access_to(lake.foreign):
        secret.unlink()


def test_hostile_tables_are_more_than_two_hundred(lake: Lake) -> None:
    assert len(PLACES) * len(lake.spellings()) == 228


@pytest.mark.parametrize("call", ["list", "stat", "read", "delete", "move", "create", "tidy", "now_ms"])
def test_store_reaches_nothing_outside(lake: Lake, call: str) -> None:
    secret = lake.foreign / "secret.parquet"
    secret.write_bytes(b"secret")
    properties = guarded_properties({}, ApprovedLocations((lake.approved.as_uri(),)))
    store = open_store(ApprovedFileIO(properties), lake.approved.as_uri())
    arguments = {"create": ([b"x"],), "move": (f"{lake.approved.as_uri()}/taken",)}.get(call, ())
    with no_access_to(lake.foreign), pytest.raises(RefusedError, match="ICM-155"):
        getattr(store, call)(secret.as_uri(), *arguments)
    assert secret.read_bytes() == b"secret"


def test_file_io_deletes_nothing_outside(lake: Lake) -> None:
    secret = lake.foreign / "secret.parquet"
    secret.write_bytes(b"secret")
    io = ApprovedFileIO(guarded_properties({}, ApprovedLocations((lake.approved.as_uri(),))))

    with pytest.raises(RefusedError, match="ICM-155"):
        io.delete(secret.as_uri())

    assert secret.exists()


def test_file_io_of_the_configuration_opens_what_is_approved(lake: Lake) -> None:
    inside = lake.approved / "f"
    inside.write_bytes(b"inside")
    properties = {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"}
    io = ApprovedFileIO(guarded_properties(properties, ApprovedLocations((lake.approved.as_uri(),))))

    assert type(io.at(inside.as_uri())).__name__ == "FsspecFileIO"
    with io.new_input(inside.as_uri()).open() as stream:
        assert stream.read() == b"inside"


@pytest.mark.parametrize(
    "properties",
    [
        {"s3.endpoint": "http://127.0.0.1:9", "s3.access-key-id": "theirs"},
        {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"},
        {"iceberg-maint.approved-locations": '["file:///", "s3://lake"]'},
        {"iceberg-maint.approved-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"},
    ],
)
def test_properties_of_a_table_choose_neither_the_store_nor_the_limits(
    lake: Lake, properties: dict[str, str]
) -> None:
    table = replace(lake.table(), properties=properties)
    commit(table, manifest(lake.file()))
    table.register(lake.database, "db.hostile")
    ours = {"s3.endpoint": "http://127.0.0.1:8", "s3.access-key-id": "ours"}
    with serving(RestServer(lake.database)) as url:
        plain = {"type": "rest", "uri": url, **ours}
        approved = guarded_properties(plain, ApprovedLocations((lake.approved.as_uri(),)))
        for given in (plain, approved):
            io = PyIcebergCatalog("lake", given).io_of(TABLE)
            assert {key: io.properties[key] for key in ours} == ours
            assert io.properties.keys() & properties.keys() <= given.keys()
        assert isinstance(io, ApprovedFileIO)
        with pytest.raises(RefusedError, match="ICM-155"):
            io.new_input(f"{lake.foreign.as_uri()}/secret.parquet")
        assert type(io.at(lake.file())).__name__ == "LiteralFileIO"


def test_store_with_vended_credentials_keeps_the_limits_and_takes_new_credentials(lake: Lake) -> None:
    table = lake.table()
    commit(table, manifest(lake.file()))
    table.register(lake.database, "db.hostile")
    now_ms, server = [1_000_000_000], RestServer(lake.database)
    with object_server() as (endpoint, bucket), serving(server) as url:
        server.vends = lambda: {
            "s3.endpoint": endpoint,
            "s3.region": "us-east-1",
            "s3.access-key-id": "key",
            "s3.secret-access-key": "secret",
            "s3.session-token": str(bucket.token),
            "s3.session-token-expires-at-ms": str(now_ms[0] + 900_000),
            # What a service copies from the properties of its tables takes no limit away.
            "iceberg-maint.approved-locations": '["s3://bucket"]',
        }
        plain = {"type": "rest", "uri": url}
        limits = ApprovedLocations((lake.approved.as_uri(), "s3://bucket/t"))
        catalog = PyIcebergCatalog("lake", guarded_properties(plain, limits), now_ms=lambda: now_ms[0])
        bucket.token, bucket.objects["t/a"], bucket.objects["u/a"] = "first", (b"1", 0.0), (b"2", 0.0)
        store = open_store(catalog.io_of(TABLE), "s3://bucket/t")
        bucket.token = "second"
        now_ms[0] += 900_000
        assert [f.path for f in store.list("s3://bucket/t")] == ["s3://bucket/t/a"]
        for call in (store.read, store.stat, store.delete, store.list):
            with pytest.raises(RefusedError, match="ICM-155"):
                call("s3://bucket/u/a")
    assert bucket.objects["u/a"][0] == b"2"
