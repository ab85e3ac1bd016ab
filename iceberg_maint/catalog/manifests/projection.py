"""The projection of a data manifest: what a measurement keeps of its live entries, and its form in the memo.

A projection is columns of integers, so that all manifests of a table of a million files fit in little memory. It
holds no threshold and no sum: a changed policy needs no other projection.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iceberg_maint.catalog.manifests.column_overlap import FileLayout
from iceberg_maint.catalog.manifests.reader import Integers, LiveEntries
from iceberg_maint.core.model.table_state import LayoutOrder, Manifest

VERSION = 1
"""Grows with every change of what a projection holds or of how it is stored."""
Partitions = tuple[int, tuple[tuple[object, ...], ...]]
"""A spec id and the distinct partitions of live entries. Partitions of removed entries may be among them."""
_DIGEST_BYTES = 16
_COLUMNS = ("partition", "kind", "records", "size_bytes", "sequence_number", "snapshot_id")
_WIDTHS = (np.uint8, np.uint16, np.uint32)


@dataclass(frozen=True, slots=True)
class Projection:
    """The live entries of one data manifest, with their layout if an order is measured. `added` are the sequence
    numbers of the commits that added the files, and `paths` the digests of their paths: two words for each."""

    entries: LiveEntries
    added: Integers | None = None
    paths: Integers | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a projection must hold beside the usual columns."""

    paths: bool
    added: bool
    order: LayoutOrder | None

    def text(self) -> str:
        """Equal for equal contents of a projection."""
        columns = [(c.field_id, c.type) for c in self.order.measured] if self.order else None
        return json.dumps([VERSION, self.paths, self.added, columns])


def identity_of(manifest: Manifest) -> str:
    """Returns everything that the entries of a manifest are read and checked with. A manifest of the same path
    with another identity is another manifest."""
    whole = replace(manifest, bounds=(), first_row_id=None)
    return repr(whole)


def path_digests(paths: Collection[str]) -> Integers:
    """Returns the digests of file paths, two words for each."""
    joined = b"".join(
        blake2b(p.encode(errors="surrogatepass"), digest_size=_DIGEST_BYTES).digest() for p in paths
    )
    return np.frombuffer(joined, np.int64).reshape(len(paths), 2)


def numbers_of(projections: Iterable[Projection], named: Mapping[bytes, str]) -> dict[str, int]:
    """Returns the sequence numbers of those data files whose path digest is among `named`; of a path that is listed
    twice, the last one."""
    found: dict[str, int] = {}
    if not named:
        return found
    # Sorted once: a table may have thousands of manifests and thousands of files that deletes name.
    first = np.sort(np.frombuffer(b"".join(named), np.int64)[::2])
    for projection in projections:
        assert projection.paths is not None
        words = projection.paths[:, 0]
        nearest = first[np.minimum(np.searchsorted(first, words), len(first) - 1)]
        for at in np.flatnonzero(nearest == words).tolist():
            path = named.get(projection.paths[at].tobytes())
            if path is not None:
                found[path] = int(projection.entries.sequence_number[at])
    return found


def pack(projection: Projection) -> bytes | None:
    """Returns the projection as bytes; None if a value has no exact form."""
    entries = projection.entries
    partitions = [[_plain(v) for v in values] for values in entries.partitions]
    if any(v is NotImplemented for values in partitions for v in values):
        return None
    arrays: list[NDArray[Any]] = [getattr(entries, name) for name in _COLUMNS]
    layout = entries.layout
    if layout is not None:
        arrays += [layout.order_id, layout.bounded, *(ends for both in layout.ranges for ends in both)]
    arrays += [a for a in (projection.added, projection.paths) if a is not None]
    if any(a.dtype == object for a in arrays):
        return None
    parts = [_packed(a) for a in arrays]
    head = {
        "spec": entries.spec_id,
        "partitions": partitions,
        "arrays": [form for form, _ in parts],
        "ranges": None if layout is None else len(layout.ranges),
        "added": projection.added is not None,
        "paths": projection.paths is not None,
    }
    text = json.dumps(head, separators=(",", ":")).encode()
    return zlib.compress(len(text).to_bytes(8, "little") + text + b"".join(data for _, data in parts), 1)


def unpack(packed: bytes) -> Projection:
    """Returns the projection that `pack` made. Raises ValueError or zlib.error for other bytes."""
    data = zlib.decompress(packed)
    length = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + length])
    place = 8 + length
    arrays: list[NDArray[Any]] = []
    for form in head["arrays"]:
        array, place = _unpacked(form, data, place)
        arrays.append(array)
    if place != len(data):
        raise ValueError(f"{len(data) - place} bytes follow the columns")
    rest = iter(arrays[len(_COLUMNS) :])
    layout = None
    if head["ranges"] is not None:
        order_id, bounded = next(rest), next(rest)
        layout = FileLayout(order_id, bounded, tuple((next(rest), next(rest)) for _ in range(head["ranges"])))
    added = next(rest) if head["added"] else None
    paths = next(rest).reshape(-1, 2) if head["paths"] else None
    entries = LiveEntries(
        head["spec"],
        tuple(tuple(_value(v) for v in values) for values in head["partitions"]),
        **dict(zip(_COLUMNS, arrays, strict=False)),
        more=(),
        layout=layout,
    )
    return Projection(entries, added, paths)


def pack_partitions(projection: Projection) -> bytes:
    """Returns spec id and partitions alone as bytes, of a projection that can be packed."""
    entries = projection.entries
    values = [[_plain(v) for v in partition] for partition in entries.partitions]
    return zlib.compress(json.dumps([entries.spec_id, values], separators=(",", ":")).encode(), 1)


def unpack_partitions(packed: bytes) -> Partitions:
    """Returns what `pack_partitions` packed."""
    spec_id, partitions = json.loads(zlib.decompress(packed))
    return spec_id, tuple(tuple(_value(v) for v in values) for values in partitions)


def _plain(value: object) -> Any:
    """Returns a partition value in a form that JSON keeps exactly, NotImplemented if there is none."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is bytes:
        return {"bytes": value.hex()}
    return NotImplemented


def _value(value: Any) -> object:
    return bytes.fromhex(value["bytes"]) if isinstance(value, dict) else value


def _packed(array: NDArray[Any]) -> tuple[Sequence[Any], bytes]:
    """Returns form and bytes of a column. Integers are stored as their distance from the lowest, in the
    narrowest type."""
    if array.dtype != np.int64 or not array.size:
        return [array.dtype.str, array.size, None, None], array.tobytes()
    low, high = int(array.min()), int(array.max())
    for width in _WIDTHS:
        if high - low <= np.iinfo(width).max:
            narrow = (array - low).astype(width)
            return ["<i8", array.size, low, narrow.dtype.str], narrow.tobytes()
    return ["<i8", array.size, None, None], array.tobytes()


def _unpacked(form: Sequence[Any], data: bytes, place: int) -> tuple[NDArray[Any], int]:
    kind, size, low, narrow = form
    stored = np.dtype(narrow or kind)
    array = np.frombuffer(data, stored, size, place)
    end = place + size * stored.itemsize
    return (array if low is None else array.astype(np.int64) + low), end
