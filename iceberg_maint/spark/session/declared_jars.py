"""Checks the jars that the configuration names."""

from __future__ import annotations

import hashlib
from pathlib import Path

from iceberg_maint.errors import RefusedError


def check_declared(path: Path, sha256: str | None) -> None:
    """Checks one jar of `spark.jars`. Without a `sha256` it checks only that the file can be read.

    `sha256` is in lower case. Raises RefusedError ICM-103 for a file that is missing, cannot be read, or has
    another checksum.
    """
    try:
        with path.open("rb") as file:
            digest = None if sha256 is None else hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as why:
        raise RefusedError(
            "ICM-103",
            f"spark.jars: {path} cannot be read: {why.strerror}.",
            "put the file there, or remove it from spark.jars.",
        ) from why
    if digest != sha256:
        raise RefusedError(
            "ICM-103",
            f"spark.jars: {path} has sha256 {digest}; it must have {sha256}.",
            "fetch the file again, or correct its sha256.",
        )
