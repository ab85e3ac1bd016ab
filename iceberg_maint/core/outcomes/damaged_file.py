"""Errors of readers that say that a data or delete file of the table is missing or damaged."""

from __future__ import annotations

from collections.abc import Iterable

_CLASSES = frozenset(
    {
        "FileNotFoundException",
        "NotFoundException",
        "NoSuchKeyException",
        "EOFException",
        "ParquetDecodingException",
        "InvalidAvroMagicException",
        "FileFormatException",
    }
)
"""Names of exceptions, without their packages: of Java, Iceberg, the AWS SDK, Parquet, Avro and ORC."""
_TEXTS = (
    "is not a Parquet file",
    "Failed to open Parquet file",
    "Failed to read footer",
    "Malformed ORC file",
    "Not an Avro data file",
    "Invalid magic number",
    "Invalid puffin",
    "CRC",
)


def is_damaged_file(causes: Iterable[tuple[str, str]]) -> bool:
    """Returns whether one of these (class name, message) is the error of a missing or damaged file."""
    return any(name.rpartition(".")[2] in _CLASSES or any(t in text for t in _TEXTS) for name, text in causes)
