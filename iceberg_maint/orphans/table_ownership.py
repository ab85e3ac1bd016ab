"""Owner: whose the table metadata files below a prefix are, by the uuid in each, and which version each is."""

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
from iceberg_maint.orphans.seen_files import SeenFiles
from iceberg_maint.ports.storage import Store, StoredFile

_HEAD_BYTES = 16 * 1024
"""Iceberg's writers put uuid and time among the first keys; a file without the uuid there is read whole."""
_MOST_WHOLE = 1_000
"""Files of the table that are read whole in one look, only because their beginning does not have the sequence
number: PyIceberg writes it last. The others have their turn in later looks."""
_AT_ONCE = 16
_GZIP = 31
"""zlib's window bits for a gzip header."""
_KEYS = ("format-version", "table-uuid", "last-sequence-number", "last-updated-ms")


def metadata_versions(
    store: Store, files: Iterable[StoredFile], uuid: str, memo: Path, *, forgets: bool = True
) -> Iterator[MetadataVersion]:
    """What each of these metadata files says. Files that are gone since they were listed are left out.

    Old metadata files pile up by the hundred thousand where nothing deletes them: only the head of
    each is read, several at once, and once only: `memo` on local disk is what the table's own said
    in earlier passes. A look that `forgets` drops from it the files that it has not met.
    """
    whole = iter(range(_MOST_WHOLE))
    with ThreadPoolExecutor(_AT_ONCE) as readers, closing(SeenFiles(memo, uuid)) as seen:
        for some in _batches(files, 100 * _AT_ONCE):
            known = list(zip(some, seen.versions(some), strict=True))
            unseen = [file for file, version in known if version is None]
            read = list(readers.map(lambda file: _version(store, file.path, uuid, whole), unseen))
            seen.add(
                (file, v)
                for file, v in zip(unseen, read, strict=True)
                if v is not None and v.owner == uuid and v.last_sequence_number is not None
            )
            yield from (v for _, v in known if v is not None)
            yield from (v for v in read if v is not None)
        if forgets:
            seen.forget_others()


def log_entries(store: Store, path: str) -> list[tuple[str, int]]:
    """Path and time of each entry of the metadata log of a metadata file; none where it is gone. Raises
    ValueError, KeyError, TypeError, OSError, zlib.error for one that cannot be read."""
    try:
        document = json.loads(_text(store.read(path)))
    except FileNotFoundError:
        return []
    return [(e["metadata-file"], int(e["timestamp-ms"])) for e in document.get("metadata-log") or ()]


def values_in(head: str, keys: Collection[str]) -> dict[str, Any]:
    """Those of the keys of a JSON object that stand in its beginning, which may be cut off anywhere."""
    decoder, at = json.JSONDecoder(), head.find("{") + 1
    found: dict[str, Any] = {}
    if not at:
        return found
    try:
        while len(found) < len(keys):
            key, at = decoder.raw_decode(head, _past(head, at))
            value, at = decoder.raw_decode(head, _past(head, _past(head, at, ":")))
            at = _past(head, at)
            # A number that ends where the beginning does may go on.
            if key in keys and (at < len(head) or isinstance(value, str)):
                found[key] = value
            at = _past(head, at, ",")
    except ValueError:
        pass
    return found


def _past(text: str, at: int, mark: str = "") -> int:
    """The place of the next character that is no space; behind `mark`, which must be there."""
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
            if owner != uuid:
                return MetadataVersion(path, owner)
            if _is_complete(head):
                return _told(path, owner, head)
            if "last-updated-ms" in head and next(whole, None) is None:
                return MetadataVersion(path, owner, None, int(head["last-updated-ms"]))
        document = json.loads(_text(store.read(path)))
        owner = str(document.get("table-uuid") or document["location"])
        return _told(path, owner, document) if owner == uuid else MetadataVersion(path, owner)
    except FileNotFoundError:
        return None  # its table has dropped it since
    except (ValueError, KeyError, TypeError, AttributeError, OSError, zlib.error) as error:
        return MetadataVersion(path, f"none that can be read: {type(error).__name__}")


def _is_complete(values: Mapping[str, Any]) -> bool:
    # Format v1 has no sequence numbers.
    return "last-updated-ms" in values and (
        "last-sequence-number" in values or values.get("format-version") == 1
    )


def _told(path: str, owner: str, values: Mapping[str, Any]) -> MetadataVersion:
    return MetadataVersion(
        path, owner, int(values.get("last-sequence-number") or 0), int(values["last-updated-ms"])
    )


def _text(data: bytes) -> str:
    """As much as there is of a text that may be compressed and cut off anywhere."""
    if data[:2] == b"\x1f\x8b":
        data = zlib.decompressobj(_GZIP).decompress(data)
    return data.decode("utf-8", errors="ignore")


def _batches(files: Iterable[StoredFile], size: int) -> Iterator[list[StoredFile]]:
    rest = iter(files)
    while some := list(islice(rest, size)):
        yield some
