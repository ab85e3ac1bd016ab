"""Settings of a FileIO that Arrow follows, and those that leave a batch to the native strategy."""

from __future__ import annotations

from typing import Any

import pytest

from iceberg_maint.engines.spark.rewrite.columnar.file_io_settings import (
    S3_FILE_IO,
    NotColumnarError,
    io_of,
    unfollowed,
)

NOW = 1_800_000_000.0
PLAIN = {
    "warehouse": "s3://lake/wh",
    "s3.endpoint": "http://127.0.0.1:9000",
    "s3.path-style-access": "true",
    "s3.access-key-id": "key",
    "s3.secret-access-key": "secret",
    "client.region": "eu-central-1",
    "s3.remote-signing-enabled": "false",
    "s3.multipart.size": "33554432",
}


class _Class:
    def __init__(self, name: str) -> None:
        self._name = name

    def getName(self) -> str:
        return self._name


class _Io:
    """As much of a Java FileIO as is asked."""

    def __init__(self, properties: dict[str, str], name: str = S3_FILE_IO) -> None:
        self._properties, self._class = properties, _Class(name)

    def getClass(self) -> _Class:
        return self._class

    def ioClass(self, location: str) -> _Class:
        return _Class(S3_FILE_IO if location.startswith("s3") else "org.apache.iceberg.hadoop.HadoopFileIO")

    def properties(self) -> dict[str, str]:
        return self._properties


class _Table:
    def __init__(self, io: _Io) -> None:
        self._io = io

    def io(self) -> _Io:
        return self._io


def table(properties: dict[str, str] | None = None, **more: Any) -> _Table:
    return _Table(_Io(PLAIN if properties is None else properties, **more))


def test_local_files_need_no_settings() -> None:
    assert io_of(table({}, name="a.b.C"), ["file:/lake/a//b.parquet", "/lake/c.parquet"]) is None


def test_settings_of_s3_are_those_of_the_table() -> None:
    assert io_of(table(), ["s3://lake/a.parquet", "/local/x.parquet"]) == PLAIN
    resolving = table(name="org.apache.iceberg.io.ResolvingFileIO")
    assert io_of(resolving, ["s3a://lake/a.parquet"]) == PLAIN


@pytest.mark.parametrize(
    ("paths", "reason"),
    [
        (["s3://lake/a.parquet", "gs://lake/b.parquet"], "files are on gs"),
        (["s3://lake/t//a.parquet"], "Arrow reads no key with two slashes in a row"),
    ],
)
def test_locations_that_arrow_does_not_read_are_native(paths: list[str], reason: str) -> None:
    with pytest.raises(NotColumnarError, match=reason):
        io_of(table(), paths)


def test_another_file_io_is_native() -> None:
    with pytest.raises(NotColumnarError, match=r"the table's FileIO is com\.example\.Io"):
        io_of(table(name="com.example.Io"), ["s3://lake/a.parquet"])


@pytest.mark.parametrize(
    "key",
    [
        "s3.sse.type",
        "s3.acl",
        "s3.write.tags.team",
        "s3.remote-signing-enabled",
        "client.factory",
        "s3.new-setting",
    ],
)
def test_setting_that_arrow_lacks_is_native(key: str) -> None:
    assert unfollowed(S3_FILE_IO, PLAIN | {key: "x"}, NOW) == f"Arrow has no setting {key}"
    assert unfollowed(S3_FILE_IO, PLAIN | {key: "false"}, NOW) == ""


@pytest.mark.parametrize(
    ("ends_in", "reason"),
    [
        (601, ""),
        (599, "the catalog's credentials end within 600 seconds"),
        (-5, "the catalog's credentials end within 600 seconds"),
    ],
)
def test_credentials_that_end_soon_are_native(ends_in: int, reason: str) -> None:
    expiry = {"s3.session-token-expires-at-ms": str(int((NOW + ends_in) * 1000))}
    assert unfollowed(S3_FILE_IO, PLAIN | expiry, NOW) == reason
