"""Reads the owner and the version of table metadata files below a prefix; the UUID in each identifies the
owner."""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from iceberg_maint.core.removal.unlogged_metadata import MetadataVersion
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.orphans.seen_files import SeenFiles
from iceberg_maint.ports.storage import Store, StoredFile

_HEAD_BYTES = 16 * 1024
"""Iceberg's writers write UUID and time among the first keys. A file without a UUID there is read
completely."""
_MOST_WHOLE = 1_000
"""The maximum number of the table's files that one look reads completely because the sequence number is
not at the beginning: PyIceberg writes it last. Later looks read the others."""
_AT_ONCE = 16
_GZIP = 31
"""zlib's window bits for a gzip header."""
_KEYS = ("format-version", "table-uuid", "last-sequence-number", "last-updated-ms")


def metadata_versions(
    store: Store, files: Iterable[StoredFile], uuid: str, memo: Path, *, forgets: bool = True
) -> Iterator[MetadataVersion]:
    """Yields the version of each of these metadata files. Files that are gone since the listing are
    omitted.

    If nothing deletes old metadata files, hundreds of thousands can accumulate. Only the beginning of
    each is read, several at once, and only once: `memo` on local disk keeps the versions from earlier
    passes. With `forgets`, the entries of files that this look has not met are removed from it.
    """
    complete_reads = iter(range(_MOST_WHOLE))
    with ThreadPoolExecutor(_AT_ONCE) as readers, closing(SeenFiles(memo)) as cache:
        for chunk in _batches(files, 100 * _AT_ONCE):
            cached = list(zip(chunk, cache.versions(chunk), strict=True))
            unseen = [file for file, version in cached if version is None]
            versions_read = list(
                readers.map(lambda file: _version(store, file.path, uuid, complete_reads), unseen)
            )
            cache.add(
                (file, v)
                for file, v in zip(unseen, versions_read, strict=True)
                if v is not None and v.last_sequence_number is not None
            )
            yield from (v for _, v in cached if v is not None)
            yield from (v for v in versions_read if v is not None)
        if forgets:
            cache.forget_others()


def log_entries(store: Store, path: str) -> list[tuple[str, int]]:
    """Returns path and time of each entry in the metadata log of a metadata file; empty if the file is
    gone. Raises ValueError, KeyError, TypeError, OSError, zlib.error for a file that cannot be read."""
    try:
        document = json.loads(_text(store.read(path)))
    except FileNotFoundError:
        return []
    return [(e["metadata-file"], int(e["timestamp-ms"])) for e in document.get("metadata-log") or ()]


def values_in(head: str, keys: Collection[str]) -> dict[str, Any]:
    """Returns those of the keys of a JSON object that are in its beginning, which may be cut off at any
    character."""
    decoder, position = json.JSONDecoder(), head.find("{") + 1
    values: dict[str, Any] = {}
    if not position:
        return values
    try:
        while len(values) < len(keys):
            key, position = decoder.raw_decode(head, _skip_spaces(head, position))
            value, position = decoder.raw_decode(head, _skip_spaces(head, _skip_spaces(head, position, ":")))
            position = _skip_spaces(head, position)
            # A number at the end of the beginning may continue.
            if key in keys and (position < len(head) or isinstance(value, str)):
                values[key] = value
            position = _skip_spaces(head, position, ",")
    except ValueError:
        pass
    return values


def _skip_spaces(text: str, at: int, mark: str = "") -> int:
    """Returns the position of the next character that is not a space, after `mark`, which must be there."""
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    if not mark:
        return at
    if text[at : at + 1] != mark:
        raise ValueError(f"no '{mark}' at {at}")
    return at + 1


def _version(store: Store, path: str, uuid: str, whole: Iterator[int]) -> MetadataVersion | None:
    try:
        head = values_in(_text(store.read(path, _HEAD_BYTES)), _KEYS)
        owner = head.get("table-uuid")
        if isinstance(owner, str):
            if owner != uuid and "last-updated-ms" in head:
                return MetadataVersion(path, owner, 0, int(head["last-updated-ms"]))
            if _is_complete(head):
                return _version_of(path, owner, head)
            if "last-updated-ms" in head and next(whole, None) is None:
                return MetadataVersion(path, owner, None, int(head["last-updated-ms"]))
        document = json.loads(_text(store.read(path)))
        return _version_of(path, str(document.get("table-uuid") or document["location"]), document)
    except FileNotFoundError:
        return None  # its table has dropped it since
    except (IcebergMaintError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - zlib, json and each wrong type raise their own errors
        return MetadataVersion(path, f"unreadable: {type(error).__name__}")


def _is_complete(values: Mapping[str, Any]) -> bool:
    # Format v1 has no sequence numbers.
    return "last-updated-ms" in values and (
        "last-sequence-number" in values or values.get("format-version") == 1
    )


def _version_of(path: str, owner: str, values: Mapping[str, Any]) -> MetadataVersion:
    return MetadataVersion(
        path, owner, int(values.get("last-sequence-number") or 0), int(values["last-updated-ms"])
    )


def _text(data: bytes) -> str:
    """Returns the available part of a text that may be compressed and cut off at any byte."""
    if data[:2] == b"\x1f\x8b":
        data = zlib.decompressobj(_GZIP).decompress(data)
    return data.decode("utf-8", errors="ignore")


def _batches(files: Iterable[StoredFile], size: int) -> Iterator[list[StoredFile]]:
    iterator = iter(files)
    while chunk := list(islice(iterator, size)):
        yield chunk
