"""Reads selected fields of Avro object container files, in Python alone: no bytes are read that are not checked.

Iceberg's manifests and manifest lists carry field ids. A reader names the ids it needs, and the other
fields are passed over without creating objects. PyIceberg's own reader is not used, for three reasons: its decoder
reads beyond its buffer, it cannot resolve a named type that is used twice (two partition fields of equal decimal, uuid
or fixed type), and it knows a fixed only as the specification has it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

from pyiceberg.avro.codecs import KNOWN_CODECS

from iceberg_maint.catalog.manifests.avro_records import RecordReader, Rows
from iceberg_maint.catalog.manifests.avro_values import (
    AvroError,
    Node,
    bytes_at,
    count_at,
    end_of,
    is_prefixed,
    kind_of,
    long_at,
)
from iceberg_maint.core.outcomes.failures import is_of_process

Column = list[Any]

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_ROWS_AT_ONCE = 1024
_NAMED = frozenset({"record", "fixed", "enum"})
_OF_JAVA = "iceberg.schema"
"""A key of the header that Iceberg's Java writer alone writes."""


def read_columns(
    data: bytes, field_ids: tuple[int, ...], map_keys: tuple[int, ...] | None = ()
) -> list[Column]:
    """Returns one column per requested field id, in file order. A field that the file lacks is None in
    every row.

    Fields of the record `data_file` (id 2) count as the entry's own. Structs become tuples, decimals and
    uuids keep their types, dates and times are the stored integers. Maps from integers become pairs ordered
    by key, but a map to bytes, as Iceberg stores bounds, becomes a tuple of the values of `map_keys` unless
    that is None. Raises AvroError if the bytes do not end where the schema says.
    """
    with _avro_errors():
        meta, start = _metadata(data)
        schema = meta["avro.schema"].decode()
        first, *others = _forms(schema, is_java=_OF_JAVA in meta)
        try:
            return _columns(data, start, meta, _layout(schema, field_ids, map_keys, first))
        except AvroError:
            for other in others:
                with suppress(AvroError):
                    return _columns(data, start, meta, _layout(schema, field_ids, map_keys, other))
            raise


def check_bounds_of_pyiceberg() -> None:
    """Makes PyIceberg read Avro in this process by its decoder in Python, which checks bounds. Its compiled one does not. The
    audit table and the second opinion on manifests are read by PyIceberg."""
    # Imported here: the schema classes of this reader take 0.05 s of CPU, and most commands need none.
    import pyiceberg.avro.file
    from pyiceberg.avro.decoder import StreamingBinaryDecoder

    vars(pyiceberg.avro.file)["new_decoder"] = StreamingBinaryDecoder


def read_metadata(data: bytes) -> dict[str, bytes]:
    """Returns the key-value metadata of the file's header. Raises AvroError."""
    with _avro_errors():
        return _metadata(data)[0]


@contextmanager
def _avro_errors() -> Iterator[None]:
    try:
        yield
    except AvroError:
        raise
    except IndexError as error:
        raise AvroError("the bytes end within a value") from error
    except Exception as error:  # the codecs and the schema each raise their own errors
        if is_of_process(error):
            raise
        raise AvroError(f"{type(error).__name__}: {error}") from error


def _forms(schema: str, *, is_java: bool) -> tuple[bool, ...]:
    """Returns whether a fixed stands behind its length, the more likely answer first. By Avro's specification it does not.
    Iceberg's Java writer puts the length there (apache/iceberg#17501)."""
    fields = _fields(schema)
    if not any(_has_prefixed(node) for _, node in fields):
        return (False,)
    return (True, False) if is_java else (False, True)


def _has_prefixed(node: Node) -> bool:
    kind = kind_of(node)
    if kind == "union":
        return any(map(_has_prefixed, node))
    if kind == "record":
        return any(_has_prefixed(f["type"]) for f in node["fields"])
    if kind in ("array", "map"):
        return _has_prefixed(node["items" if kind == "array" else "values"])
    return is_prefixed(node)


def _columns(data: bytes, start: int, meta: Mapping[str, bytes], layout: _Layout) -> list[Column]:
    reader, places = layout
    columns: list[Column] = [[] for _ in places]
    rows: Rows = []
    for count, block in _blocks(data, start, meta):
        with _avro_errors():
            end = reader(block, count, rows)
        if end != len(block):
            raise AvroError(f"{count} records end at byte {end} of a block of {len(block)}")
        if len(rows) >= _ROWS_AT_ONCE:
            _append(columns, reader, places, rows)
            rows = []
    if rows:
        _append(columns, reader, places, rows)
    return columns


def _append(columns: list[Column], reader: RecordReader, places: Sequence[int | None], rows: Rows) -> None:
    values = reader.columns(rows)
    absent = (None,) * len(rows)
    for column, place in zip(columns, places, strict=True):
        column.extend(absent if place is None else values[place])


def _metadata(data: bytes) -> tuple[dict[str, bytes], int]:
    """Returns the metadata of the header, and the position of the sync marker."""
    if not data.startswith(_MAGIC):
        raise AvroError("not an Avro object container file")
    meta: dict[str, bytes] = {}
    pos = len(_MAGIC)
    while True:
        count, pos = count_at(data, pos)
        if not count:
            return meta, pos
        for _ in range(count):
            key, pos = bytes_at(data, pos)
            meta[key.decode()], pos = bytes_at(data, pos)


def _blocks(data: bytes, start: int, meta: Mapping[str, bytes]) -> Iterator[tuple[int, bytes]]:
    codec = KNOWN_CODECS[meta.get("avro.codec", b"null").decode()]  # type: ignore[index]
    pos = end_of(data, start, _SYNC_BYTES)
    sync = data[start:pos]
    while pos < len(data):
        count, pos = long_at(data, pos)
        size_bytes, pos = long_at(data, pos)
        if not 0 <= size_bytes <= len(data) - pos - _SYNC_BYTES:
            raise AvroError(f"the file ends within a block of {size_bytes} bytes")
        block, pos = data[pos : pos + size_bytes], pos + size_bytes + _SYNC_BYTES
        if data[pos - _SYNC_BYTES : pos] != sync:
            raise AvroError("a block does not end with the file's sync marker")
        block = codec.decompress(block) if codec else block
        # Without this bound records of no bytes would be made without end.
        if not 0 <= count <= len(block):
            raise AvroError(f"a block of {len(block)} bytes states {count} records")
        yield count, block


_Layout = tuple[RecordReader, tuple[int | None, ...]]
"""The reader of the schema's records, and for each requested id its place in the result."""


@lru_cache(maxsize=256)
def _layout(
    schema: str, field_ids: tuple[int, ...], map_keys: tuple[int, ...] | None, prefixed: bool
) -> _Layout:
    fields = _fields(schema)
    decoded_ids = [field_id for field_id, _ in fields if field_id in field_ids]
    requested = [(node, field_id in field_ids) for field_id, node in fields]
    reader = RecordReader(requested, map_keys, prefixed=prefixed)
    return reader, tuple(decoded_ids.index(i) if i in decoded_ids else None for i in field_ids)


def _fields(schema: str) -> list[tuple[int, Any]]:
    try:
        return list(_flattened(json.loads(schema), {}))
    except RecursionError as error:
        raise AvroError("its schema nests too deeply") from error


def _flattened(record: Mapping[str, Any], names: dict[str, Mapping[str, Any]]) -> Iterator[tuple[int, Any]]:
    for field in record["fields"]:
        field_id, node = int(field["field-id"]), _declare(field["type"], names)
        if field_id == DATA_FILE:
            yield from _flattened(node, names)
        else:
            yield field_id, node


DATA_FILE = 2
"""Field id of a manifest entry's `data_file` record. Its fields are read as the entry's own."""


def _declare(node: Any, names: dict[str, Mapping[str, Any]]) -> Any:
    """Records named types and replaces references to them, so that later code handles only types."""
    if isinstance(node, str):
        return names.get(node, node)
    if isinstance(node, list):
        return [_declare(n, names) for n in node]
    node = dict(node)
    kind = node["type"]
    if kind == "record":
        node["fields"] = [f | {"type": _declare(f["type"], names)} for f in node["fields"]]
    elif kind == "array":
        node["items"] = _declare(node["items"], names)
    elif kind == "map":
        node["values"] = _declare(node["values"], names)
    elif isinstance(kind, (dict, list)):
        return _declare(kind, names)
    if kind in _NAMED:
        names[node["name"]] = node
    return node
