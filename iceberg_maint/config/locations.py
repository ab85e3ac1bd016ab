"""Files, folders, jars and databases that the configuration names, checked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from iceberg_maint.config.secrets import Resolver
from iceberg_maint.config.value_text import yaml_repr
from iceberg_maint.errors import ConfigurationError, RefusedError

# Spark reads the comma as a separator, and the others as patterns, fragments and escapes of a URI.
_NOT_LITERAL = {
    "Spark": re.compile(r"[,*?\[\]{}#%\\\s]"),
    # Java's options are separated by spaces, may be quoted, and separate two archives by a colon. Java replaces %p.
    "Java": re.compile(r"[:%'\"\\\s]"),
}


def local_file(text: str, where: str, reader: str) -> Path:
    """The path in the setting `where`, which `reader` (Spark or Java) will read. Reads no file.

    Raises ConfigurationError ICM-100 for a path that is not absolute or that the reader would misread.
    """
    if not text.startswith("/"):
        raise ConfigurationError(
            "ICM-100",
            f"{where} is '{text}'. It must be an absolute path of a local file.",
            "write the absolute path.",
        )
    if forbidden := _NOT_LITERAL[reader].search(text):
        raise ConfigurationError(
            "ICM-100",
            f"{where} is '{text}'. It must not contain {forbidden[0]!r}, which {reader} would not read literally.",
            "rename the file or its folder.",
        )
    return Path(text)


_KEYS = {"path", "sha256"}


@dataclass(frozen=True, slots=True)
class JarConfig:
    """A local file by its absolute path. `sha256`, in lower case, is the required checksum of its bytes."""

    path: Path
    sha256: str | None


def jar_configs(entries: Iterable[object], resolver: Resolver) -> tuple[JarConfig, ...]:
    """Returns the jars of `spark.jars`, each a path or a mapping of `path` and `sha256`. Reads no file.

    Raises ConfigurationError ICM-100 for another key, for a path that is not absolute or that Spark would
    misread, and for a value that is not a checksum.
    """
    return tuple(_jar(entry, f"spark.jars.{i}", resolver) for i, entry in enumerate(entries))


def _jar(entry: object, where: str, resolver: Resolver) -> JarConfig:
    sha256 = None
    if isinstance(entry, Mapping) and "env" not in entry:
        if not {"path"} <= set(entry) <= _KEYS:
            keys = ", ".join(sorted(map(str, entry)))
            raise ConfigurationError(
                "ICM-100",
                f"{where} has the keys {keys}. It must have path and may have sha256.",
                "write path, and sha256 if the file is to be checked.",
            )
        if "sha256" in entry:
            sha256 = _checksum(entry["sha256"], f"{where}.sha256")
        entry, path_key = entry["path"], f"{where}.path"
    else:
        path_key = where
    return JarConfig(local_file(resolver.text(entry, path_key), path_key, "Spark"), sha256)


def _checksum(value: object, where: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[0-9a-fA-F]{64}", value):
        raise ConfigurationError(
            "ICM-100",
            f"{where} is {yaml_repr(value)}. It must be a text of 64 hexadecimal digits.",
            "write the SHA-256 of the file.",
        )
    return value.lower()


NETWORK_FILE_SYSTEMS = frozenset(
    [
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "fuse.ceph",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.goofys",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "orangefs",
        "smb2",
        "smb3",
        "smbfs",
    ]
)
WAREHOUSE_SCHEMES = frozenset(
    ["abfs", "abfss", "file", "gs", "hdfs", "oss", "s3", "s3a", "s3n", "wasb", "wasbs"]
)


def check_database(url: str, path: str, mounts: str) -> str:
    """Returns the SQLAlchemy address of a ledger or catalog database, in the canonical form.

    `mounts` is the text of /proc/mounts. Raises ConfigurationError ICM-100 for a database other than
    SQLite or PostgreSQL, and for a relative or in-memory SQLite file. Raises RefusedError ICM-116 for
    SQLite on a network file system.
    """
    dialect = url.partition(":")[0]
    if dialect in ("postgresql", "postgresql+psycopg2"):
        return "postgresql+psycopg2" + url[len(dialect) :]
    if dialect != "sqlite":
        raise ConfigurationError(
            "ICM-100",
            f"{path} is '{url}'. It must be sqlite:////… or postgresql+psycopg2://….",
            "write the SQLAlchemy form; the JDBC form is derived from it.",
        )
    file = sqlite_file(url)
    if file is None or not file.is_absolute() or ".." in file.parts:
        raise ConfigurationError(
            "ICM-100",
            f"{path} is '{url}'. A SQLite address must name a file by its absolute path.",
            "write sqlite:////absolute/path.db, with four slashes.",
        )
    kind = file_system_of(file, mounts)
    if kind in NETWORK_FILE_SYSTEMS:
        raise RefusedError(
            "ICM-116",
            f"{path} is a SQLite file on {kind}. SQLite's locks do not work on this file system.",
            "move the file to a local disk, or use PostgreSQL.",
        )
    return url


_SERVICE_SCHEMES: Mapping[str, tuple[str, ...]] = {"rest": ("http", "https"), "hive": ("thrift",)}
"""The schemes of the addresses of each type of catalog that is a service."""


def check_service(uri: str, kind: str, path: str) -> None:
    """Raises ConfigurationError ICM-100 if the address of a REST or Hive catalog has no known scheme or no host. Hive takes
    several addresses, with commas between them."""
    schemes = _SERVICE_SCHEMES.get(kind)
    if schemes is None:
        return
    for address in uri.split(","):
        parts = urlsplit(address.strip())
        if parts.scheme not in schemes or not parts.netloc:
            forms = " or ".join(f"{scheme}://" for scheme in schemes)
            raise ConfigurationError(
                "ICM-100",
                f"{path} is '{uri}'. The address of a {kind} catalog must start with {forms} and name a host.",
                f"write {schemes[-1]}://host:port.",
            )


def check_endpoint(address: str, path: str) -> None:
    """Raises ConfigurationError ICM-100 for an address of a store without scheme or host. Of Spark's and Arrow's clients
    one takes https for it, the other fails without naming it."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigurationError(
            "ICM-100",
            f"{path} is '{address}'. It must start with http:// or https:// and name a host.",
            "write https://host:port.",
        )


def sqlite_file(url: str) -> Path | None:
    """Returns the file of a `sqlite:///` address; None for another address or an in-memory database."""
    match = re.fullmatch(r"sqlite:///(?!:memory:)([^?]+)(\?.*)?", url)
    return Path(match[1]) if match else None


def check_warehouse(warehouse: str, path: str) -> str:
    """Returns a warehouse address with a known scheme and an absolute path, without a trailing slash."""
    parts = urlsplit(warehouse)
    if parts.scheme not in WAREHOUSE_SCHEMES:
        schemes = ", ".join(sorted(WAREHOUSE_SCHEMES))
        raise ConfigurationError(
            "ICM-100",
            f"{path} is '{warehouse}'. It must start with one of {schemes} and a colon.",
            "for a local folder write file:///absolute/path.",
        )
    if parts.scheme == "file" and not (parts.path.startswith("/") and not parts.netloc):
        raise ConfigurationError(
            "ICM-100",
            f"{path} is '{warehouse}'. It must be an absolute path.",
            "write file:///absolute/path.",
        )
    if ".." in warehouse.split("/"):
        raise ConfigurationError(
            "ICM-100", f"{path} is '{warehouse}'. It must not contain '..'.", "write the path without '..'."
        )
    return warehouse.rstrip("/")


_FILE_IO_SCHEMES: Mapping[str, frozenset[str]] = {
    "org.apache.iceberg.aws.s3.S3FileIO": frozenset(["s3", "s3a", "s3n"]),
    "org.apache.iceberg.gcp.gcs.GCSFileIO": frozenset(["gs"]),
    "org.apache.iceberg.azure.adlsv2.ADLSFileIO": frozenset(["abfs", "abfss", "wasb", "wasbs"]),
}
"""The schemes that each FileIO of Iceberg for one kind of store reads."""


def check_store(warehouse: str, io_impl: str, path: str) -> None:
    """Refuses a warehouse that its FileIO does not read, and one on Azure without container and account: ICM-100."""
    parts = urlsplit(warehouse)
    if io_impl in _FILE_IO_SCHEMES and parts.scheme not in _FILE_IO_SCHEMES[io_impl]:
        fitting = [name for name, schemes in _FILE_IO_SCHEMES.items() if parts.scheme in schemes]
        raise ConfigurationError(
            "ICM-100",
            f"{path}.properties.io-impl is {io_impl}, which does not read {parts.scheme}: of {path}.warehouse.",
            f"set it to {fitting[0]}." if fitting else f"remove {path}.properties.io-impl.",
        )
    is_azure = parts.scheme in _FILE_IO_SCHEMES["org.apache.iceberg.azure.adlsv2.ADLSFileIO"]
    if is_azure and not (parts.username and parts.hostname and "." in parts.hostname):
        raise ConfigurationError(
            "ICM-100",
            f"{path}.warehouse is '{warehouse}'. On Azure it must name container and account.",
            "write abfss://container@account.dfs.core.windows.net/folder.",
        )


def file_system_of(path: Path, mounts: str) -> str | None:
    """Returns the type of the file system that holds `path`, by the longest mount point; None if unknown."""
    real = path.resolve().as_posix()
    best, kind = "", None
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[1])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        # A later mount hides an earlier one at the same mount point.
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind
