"""Errors of readers that say that a data or delete file of the table is missing or damaged."""

from __future__ import annotations

from collections.abc import Iterable

_CLASSES = frozenset(
    {
        "NotFoundException",
        "NoSuchKeyException",
        "ParquetDecodingException",
        "InvalidAvroMagicException",
        "FileFormatException",
    }
)
"""Names of exceptions, without their packages: of Iceberg, the AWS SDK, Parquet, Avro and ORC. Java's own are not among them:
scratch files and workers raise them too."""
_TEXTS = (
    "is not a Parquet file",
    "Failed to open Parquet file",
    "Failed to read footer",
    "Malformed ORC file",
    "Not an Avro data file",
    "Invalid magic number",
    "Invalid puffin",
    "checksum verification failed",
    "Reached the end of stream with",
)


def is_damaged_file(causes: Iterable[tuple[str, str]]) -> bool:
    """Returns whether one of these (class name, message) is the error of a missing or damaged file."""
    return any(name.rpartition(".")[2] in _CLASSES or any(t in text for t in _TEXTS) for name, text in causes)
