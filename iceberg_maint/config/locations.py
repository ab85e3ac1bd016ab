"""Addresses of databases and folders: absolute, local where they must be."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

from iceberg_maint.errors import ConfigurationError, RefusedError

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
    """The SQLAlchemy address of a ledger or catalog database, in the form the rest relies on.

    `mounts` is the text of /proc/mounts. Raises ConfigurationError ICM-100 for another database
    than SQLite or PostgreSQL, a relative or in-memory SQLite file; RefusedError ICM-116 for
    SQLite on a network file system.
    """
    dialect = url.partition(":")[0]
    if dialect in ("postgresql", "postgresql+psycopg2"):
        return "postgresql+psycopg2" + url[len(dialect) :]
    if dialect != "sqlite":
        raise ConfigurationError(
            "ICM-100",
            f"{path} starts with '{dialect}:': must be sqlite:////… or postgresql+psycopg2://….",
            "write the SQLAlchemy form; the JDBC form is derived from it.",
        )
    file = sqlite_file(url)
    if file is None or not file.is_absolute() or ".." in file.parts:
        raise ConfigurationError(
            "ICM-100",
            f"{path} is '{url}': a SQLite address must name a file by its absolute path.",
            "write sqlite:////absolute/path.db, with four slashes.",
        )
    kind = file_system_of(file, mounts)
    if kind in NETWORK_FILE_SYSTEMS:
        raise RefusedError(
            "ICM-116",
            f"{path} is a SQLite file on {kind}: its locks do not hold there.",
            "move it to a local disk, or use PostgreSQL.",
        )
    return url


def sqlite_file(url: str) -> Path | None:
    """The file of a `sqlite:///` address; None for another address or an in-memory database."""
    match = re.fullmatch(r"sqlite:///(?!:memory:)([^?]+)(\?.*)?", url)
    return Path(match[1]) if match else None


def check_warehouse(warehouse: str, path: str) -> str:
    """A warehouse address with a scheme we know and an absolute path, without a trailing slash."""
    parts = urlsplit(warehouse)
    if parts.scheme not in WAREHOUSE_SCHEMES:
        known = ", ".join(sorted(WAREHOUSE_SCHEMES))
        raise ConfigurationError(
            "ICM-100",
            f"{path} is '{warehouse}': must start with one of {known} and a colon.",
            "for a local folder write file:///absolute/path.",
        )
    if parts.scheme == "file" and not (parts.path.startswith("/") and not parts.netloc):
        raise ConfigurationError(
            "ICM-100", f"{path} is '{warehouse}': must be an absolute path.", "write file:///absolute/path."
        )
    if ".." in parts.path.split("/"):
        raise ConfigurationError(
            "ICM-100", f"{path} is '{warehouse}': must not contain '..'.", "write the real path."
        )
    return warehouse.rstrip("/")


def file_system_of(path: Path, mounts: str) -> str | None:
    """Type of the file system that holds `path`, by the longest mount point; None if unknown."""
    real = path.resolve().as_posix()
    best, kind = "", None
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[1])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        # A later mount covers an earlier one at the same point.
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind
