"""Owner: whose the table metadata files below a prefix are, by the uuid in each."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from pathlib import Path

from iceberg_maint.orphans.seen import SeenFiles
from iceberg_maint.storage_ports import Store, StoredFile

_HEAD_BYTES = 16 * 1024
"""Iceberg's writers put the uuid among the first keys; a file without it there is read whole."""
_AT_ONCE = 16
_GZIP = 31
"""zlib's window bits for a gzip header."""


def foreign_metadata(
    store: Store, files: Iterable[StoredFile], uuid: str, memo: Path
) -> tuple[str, str] | None:
    """The first of these metadata files that is not of the table with this uuid, and whose it is
    (a uuid, a location, or why it cannot be told); None when all are. Files that are gone since
    they were listed count as nobody's.

    Old metadata files pile up by the hundred thousand where nothing deletes them: only the head of
    each is read, several at once, and once only: `memo` on local disk is what was seen to be the
    table's in earlier passes.
    """
    with ThreadPoolExecutor(_AT_ONCE) as readers, closing(SeenFiles(memo)) as seen:
        for some in _batches(files, 100 * _AT_ONCE):
            unseen = seen.unseen(some)
            owners = list(readers.map(lambda file: _owner(store, file.path), unseen))
            for file, owner in zip(unseen, owners, strict=True):
                if owner is not None and owner != uuid:
                    return file.path, owner
            seen.add(file for file, owner in zip(unseen, owners, strict=True) if owner == uuid)
        seen.forget_others()
    return None


def uuid_in(head: str) -> str | None:
    """The table's uuid, where it stands in the beginning of its metadata; None when that does not
    tell: cut off before it, or no JSON object."""
    decoder, at = json.JSONDecoder(), head.find("{") + 1
    if not at:
        return None
    try:
        while True:
            key, at = decoder.raw_decode(head, _past(head, at))
            value, at = decoder.raw_decode(head, _past(head, _past(head, at, ":")))
            if key == "table-uuid":
                return value if isinstance(value, str) else None
            at = _past(head, at, ",")
    except ValueError:
        return None


def _past(text: str, at: int, mark: str = "") -> int:
    """The place of the next character that is no space; behind `mark`, which must be there."""
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    if not mark:
        return at
    if text[at : at + 1] != mark:
        raise ValueError(f"no '{mark}' at {at}")
    return at + 1


def _owner(store: Store, path: str) -> str | None:
    try:
        head = store.read(path, _HEAD_BYTES)
        found = uuid_in(_text(head))
        if found is not None:
            return found
        document = json.loads(_text(store.read(path)))
        return str(document.get("table-uuid") or document["location"])
    except FileNotFoundError:
        return None  # its table has dropped it since
    except (ValueError, KeyError, TypeError, AttributeError, OSError, zlib.error) as error:
        return f"none that can be read: {type(error).__name__}"


def _text(data: bytes) -> str:
    """As much as there is of a text that may be compressed and cut off anywhere."""
    if data[:2] == b"\x1f\x8b":
        data = zlib.decompressobj(_GZIP).decompress(data)
    return data.decode("utf-8", errors="ignore")


def _batches(files: Iterable[StoredFile], size: int) -> Iterator[list[StoredFile]]:
    rest = iter(files)
    while some := list(islice(rest, size)):
        yield some
