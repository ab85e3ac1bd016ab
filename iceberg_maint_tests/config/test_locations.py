"""Which file system a path lies on."""

from __future__ import annotations

from pathlib import Path

import pytest

from iceberg_maint.config.locations import (
    check_database,
    check_endpoint,
    check_service,
    check_store,
    check_warehouse,
    file_system_of,
    sqlite_file,
)
from iceberg_maint.errors import ConfigurationError, RefusedError

MOUNTS = r"""/dev/a / ext4 rw 0 0
nas:/x /mnt/nas nfs rw 0 0
/dev/b /mnt/nas/local xfs rw 0 0
host:/y /mnt/with\040space fuse.sshfs rw 0 0
/dev/c /covered nfs4 rw 0 0
/dev/d /covered ext4 rw 0 0
malformed
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/data/x.db", "ext4"),
        ("/mnt/nas/x.db", "nfs"),
        ("/mnt/nasty/x.db", "ext4"),
        ("/mnt/nas/local/x.db", "xfs"),
        ("/mnt/with space/x.db", "fuse.sshfs"),
        ("/covered/x.db", "ext4"),
    ],
)
def test_longest_mount_point_decides_the_file_system(path: str, kind: str) -> None:
    assert file_system_of(Path(path), MOUNTS) == kind


def test_symbolic_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/mnt/nas")
    with pytest.raises(RefusedError, match="ICM-116 ledger is a SQLite file on nfs"):
        check_database(f"sqlite:///{tmp_path}/link/x.db", "ledger", MOUNTS)


def test_database_addresses_are_brought_to_one_form() -> None:
    assert check_database("postgresql://h/d", "ledger", "") == "postgresql+psycopg2://h/d"
    assert check_database("sqlite:////a/b c.db", "ledger", MOUNTS) == "sqlite:////a/b c.db"
    assert sqlite_file("sqlite:////a/b.db?timeout=3") == Path("/a/b.db")
    assert sqlite_file("sqlite:///:memory:") is None


def test_warehouse_loses_its_trailing_slash() -> None:
    assert check_warehouse("s3://bucket/path/", "w") == "s3://bucket/path"


@pytest.mark.parametrize(
    ("uri", "kind"),
    [
        ("http://127.0.0.1:8181", "rest"),
        ("https://catalog.example.com/api/catalog", "rest"),
        ("thrift://a:9083,thrift://b:9083", "hive"),
        ("us-east-1", "glue"),
    ],
)
def test_address_of_a_service_is_accepted(uri: str, kind: str) -> None:
    check_service(uri, kind, "catalogs.lake.uri")


@pytest.mark.parametrize(
    ("uri", "kind", "forms"),
    [
        ("127.0.0.1:8181", "rest", "http:// or https://"),
        ("catalog.example.com", "rest", "http:// or https://"),
        ("https:catalog.example.com", "rest", "http:// or https://"),
        ("", "rest", "http:// or https://"),
        ("a:9083", "hive", "thrift://"),
        ("thrift://a:9083,b:9083", "hive", "thrift://"),
    ],
)
def test_address_of_a_service_without_scheme_or_host_is_refused(uri: str, kind: str, forms: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_service(uri, kind, "catalogs.lake.uri")
    assert str(refused.value).startswith(
        f"ICM-100 catalogs.lake.uri is '{uri}'. The address of a {kind} catalog must start with {forms} and name a host."
    )


@pytest.mark.parametrize("address", ["127.0.0.1:9000", "minio", "s3://lake", "http://", ""])
def test_address_of_a_store_without_scheme_or_host_is_refused_by_its_setting(address: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"ICM-100 here is '.*'. It must start with http:// or https://"
    ):
        check_endpoint(address, "here")
    check_endpoint("http://127.0.0.1:9000", "here")


S3, GCS, ADLS = (
    "org.apache.iceberg.aws.s3.S3FileIO",
    "org.apache.iceberg.gcp.gcs.GCSFileIO",
    "org.apache.iceberg.azure.adlsv2.ADLSFileIO",
)
AZURE = "abfss://lake@account.dfs.core.windows.net/warehouse"


@pytest.mark.parametrize(
    ("warehouse", "io_impl"),
    [
        ("s3://lake/w", S3),
        ("s3a://lake/w", S3),
        ("gs://lake/w", GCS),
        (AZURE, ADLS),
        ("gs://lake/w", ""),
        ("s3://lake/w", "com.example.OwnFileIO"),
        ("file:///w", ""),
    ],
)
def test_store_that_its_file_io_reads_is_accepted(warehouse: str, io_impl: str) -> None:
    check_store(warehouse, io_impl, "catalogs.lake")


@pytest.mark.parametrize(
    ("warehouse", "io_impl", "message"),
    [
        ("gs://lake/w", S3, f"which does not read gs: .* set it to {GCS}"),
        (AZURE, GCS, f"which does not read abfss: .* set it to {ADLS}"),
        ("file:///w", S3, "which does not read file: .* remove catalogs.lake.properties.io-impl"),
        ("abfss://lake/w", ADLS, "must name container and account. .*abfss://container@account"),
        ("abfss://lake@account/w", "", "must name container and account"),
    ],
)
def test_store_that_its_file_io_does_not_read_is_refused(warehouse: str, io_impl: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^ICM-100 catalogs.lake.*{message}"):
        check_store(warehouse, io_impl, "catalogs.lake")
