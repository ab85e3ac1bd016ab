"""Pruned reads of Avro object container files, on PyIceberg's compiled decoder.

Iceberg's manifests and manifest lists carry field ids, so a reader names the ids it wants and the
rest is skipped without making objects. PyIceberg's own reader tree is not used: it cannot resolve
a named type that is used twice (two partition fields of equal decimal, uuid or fixed type), it
makes a Python call per skipped map entry, and it resolves the schema anew for every file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any
from uuid import UUID

from pyiceberg.avro.codecs import KNOWN_CODECS
from pyiceberg.avro.decoder import BinaryDecoder, new_decoder
from pyiceberg.utils.decimal import bytes_to_decimal

Read = Callable[[BinaryDecoder], Any]
Column = list[Any]

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_DOUBLE = Struct("<d")
_NAMED = frozenset({"record", "fixed", "enum"})


class AvroError(ValueError):
    """The file is no Avro container, or its bytes disagree with its own schema."""


def read_columns(data: bytes, wanted: tuple[int, ...], map_keys: tuple[int, ...] = ()) -> list[Column]:
    """One column per wanted field id, in file order; a field the file lacks is all None.

    Fields of the record `data_file` (id 2) count as the entry's own. Structs come as tuples,
    decimals and uuids as such, dates and times as the stored integers. Of a map from integers to
    bytes, as Iceberg keeps bounds, come the values of `map_keys` as a tuple. Raises AvroError when
    the bytes do not end where the schema says they do.
    """
    decoder = new_decoder(data)
    columns: list[Column] = [[] for _ in wanted]
    try:
        schema, decompress, sync = _header(decoder)
        readers, places = _layout(schema, wanted, map_keys)
        for count, block in _blocks(decoder, len(data), decompress, sync):
            _append(columns, places, _rows(block, count, readers))
    except AvroError:
        raise
    except Exception as error:  # the decoder, the codecs and the schema each raise their own
        raise AvroError(f"{type(error).__name__}: {error}") from error
    return columns


def _append(columns: list[Column], places: Sequence[int | None], rows: list[list[Any]]) -> None:
    if not rows:
        return
    values = tuple(zip(*rows, strict=True))
    absent = (None,) * len(rows)
    for column, place in zip(columns, places, strict=True):
        column.extend(absent if place is None else values[place])


def _rows(block: bytes, count: int, readers: tuple[Read, ...]) -> list[list[Any]]:
    decoder = new_decoder(block)
    rows = [[read(decoder) for read in readers] for _ in range(count)]
    if decoder.tell() != len(block):
        raise AvroError(f"{count} records end at byte {decoder.tell()} of a block of {len(block)}")
    return rows


def _header(decoder: BinaryDecoder) -> tuple[str, Callable[[bytes], bytes] | None, bytes]:
    if decoder.read(len(_MAGIC)) != _MAGIC:
        raise AvroError("not an Avro object container file")
    meta: dict[str, bytes] = {}
    while count := decoder.read_int():
        if count < 0:
            decoder.skip_int()
        for _ in range(abs(count)):
            key = decoder.read_utf8()
            meta[key] = decoder.read_bytes()
    name = meta.get("avro.codec", b"null").decode()
    codec = KNOWN_CODECS[name]  # type: ignore[index]
    return meta["avro.schema"].decode(), codec.decompress if codec else None, decoder.read(_SYNC_BYTES)


def _blocks(
    decoder: BinaryDecoder,
    length: int,
    decompress: Callable[[bytes], bytes] | None,
    sync: bytes,
) -> Iterator[tuple[int, bytes]]:
    while decoder.tell() < length:
        count, size_bytes = decoder.read_int(), decoder.read_int()
        # The compiled decoder checks no bounds: it would read on in foreign memory.
        if not 0 <= size_bytes <= length - decoder.tell() - _SYNC_BYTES:
            raise AvroError(f"the file ends within a block of {size_bytes} bytes")
        block = decoder.read(size_bytes)
        if decoder.read(_SYNC_BYTES) != sync:
            raise AvroError("a block does not end with the file's sync marker")
        yield count, decompress(block) if decompress else block


@lru_cache(maxsize=256)
def _layout(
    schema: str, wanted: tuple[int, ...], map_keys: tuple[int, ...]
) -> tuple[tuple[Read, ...], tuple[int | None, ...]]:
    """Readers in file order, runs of skipped fields made one, and each wanted id's place."""
    names: dict[str, Mapping[str, Any]] = {}
    fields = list(_flattened(json.loads(schema), names))
    readers: list[Read] = []
    places: dict[int, int] = {}
    skipped: list[Read] = []
    for field_id, node in fields:
        if field_id in wanted:
            if skipped:
                readers.append(_skip_all(tuple(skipped)))
                skipped = []
            places[field_id] = len(readers)
            readers.append(_reader(node, map_keys))
        else:
            skipped.append(_skipper(node))
    if skipped:
        readers.append(_skip_all(tuple(skipped)))
    return tuple(readers), tuple(places.get(i) for i in wanted)


def _flattened(record: Mapping[str, Any], names: dict[str, Mapping[str, Any]]) -> Iterator[tuple[int, Any]]:
    for field in record["fields"]:
        field_id, node = int(field["field-id"]), _declare(field["type"], names)
        if field_id == DATA_FILE:
            yield from _flattened(node, names)
        else:
            yield field_id, node


DATA_FILE = 2
"""Field id of a manifest entry's `data_file` record, whose fields are read as the entry's own."""


def _declare(node: Any, names: dict[str, Mapping[str, Any]]) -> Any:
    """Notes named types and replaces references to them, so that later code sees only types."""
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


def _kind(node: Any) -> str:
    return str(node) if isinstance(node, str) else "union" if isinstance(node, list) else str(node["type"])


def _reader(node: Any, map_keys: tuple[int, ...] = ()) -> Read:
    kind = _kind(node)
    if kind == "union":
        return _union(node, lambda branch: _reader(branch, map_keys))
    if kind == "record":
        parts = tuple(_reader(f["type"]) for f in node["fields"])
        return lambda d: tuple([read(d) for read in parts])
    if kind == "array":
        if _item_kinds(node["items"]) == _INT_TO_BYTES:
            return _read_int_to_bytes(map_keys)
        return _read_array(_reader(node["items"]))
    logical = node.get("logicalType") if isinstance(node, dict) else None
    if kind in ("fixed", "bytes"):
        read_bytes = _fixed(int(node["size"])) if kind == "fixed" else _READ["bytes"]
        if logical == "decimal":
            scale = int(node.get("scale", 0))
            return lambda d: bytes_to_decimal(read_bytes(d), scale)
        if logical == "uuid":
            return lambda d: UUID(bytes=read_bytes(d))
        return read_bytes
    return _READ[kind]


def _skipper(node: Any) -> Read:
    kind = _kind(node)
    if kind == "union":
        return _union(node, _skipper)
    if kind == "record":
        return _skip_all(tuple(_skipper(f["type"]) for f in node["fields"]))
    if kind == "array":
        return _skip_array(node["items"])
    if kind == "map":
        value = _skipper(node["values"])
        return _skip_items(_skip_all((_SKIP["string"], value)))
    if kind == "fixed":
        size = int(node["size"])
        return lambda d: d.skip(size)
    return _SKIP[kind]


_READ: dict[str, Read] = {
    "null": lambda _: None,
    "boolean": lambda d: d.read_boolean(),
    "int": lambda d: d.read_int(),
    "long": lambda d: d.read_int(),
    "float": lambda d: d.read_float(),
    # PyIceberg 0.12's compiled read_double returns the value rounded to a float.
    "double": lambda d: _DOUBLE.unpack(d.read(8))[0],
    "string": lambda d: d.read_utf8(),
    "bytes": lambda d: d.read_bytes(),
}
_SKIP: dict[str, Read] = {
    "null": lambda _: None,
    "boolean": lambda d: d.skip_boolean(),
    "int": lambda d: d.skip_int(),
    "long": lambda d: d.skip_int(),
    "float": lambda d: d.skip_float(),
    "double": lambda d: d.skip_double(),
    "string": lambda d: d.skip_utf8(),
    "bytes": lambda d: d.skip_bytes(),
}


def _fixed(size: int) -> Read:
    return lambda d: d.read(size)


def _union(branches: Sequence[Any], make: Callable[[Any], Read]) -> Read:
    """Iceberg's unions: null and one type, in either order."""
    if len(branches) == 2 and "null" in branches:
        present = 1 - branches.index("null")
        read = make(branches[present])
        return lambda d: read(d) if d.read_int() == present else None
    reads = tuple(make(b) for b in branches)
    return lambda d: reads[d.read_int()](d)


def _skip_all(skips: tuple[Read, ...]) -> Read:
    if len(skips) == 1:
        return skips[0]

    def skip(decoder: BinaryDecoder) -> None:
        for one in skips:
            one(decoder)

    return skip


def _read_array(read: Read) -> Read:
    def items(decoder: BinaryDecoder) -> tuple[Any, ...]:
        found: list[Any] = []
        while count := decoder.read_int():
            if count < 0:
                decoder.skip_int()
            found += [read(decoder) for _ in range(abs(count))]
        return tuple(found)

    return items


def _read_int_to_bytes(keys: tuple[int, ...]) -> Read:
    def values(decoder: BinaryDecoder) -> tuple[bytes | None, ...]:
        found: dict[int, bytes] = {}
        while count := decoder.read_int():
            if count < 0:
                decoder.skip_int()
            decoder.read_int_bytes_dict(abs(count), found)
        return tuple([found.get(key) for key in keys])

    return values


def _skip_array(items: Any) -> Read:
    """Arrays of integers and Iceberg's maps (arrays of key, value) go by without a call each."""
    kinds = _item_kinds(items)
    if all(k in ("int", "long") for k in kinds):
        return _skip_integers(len(kinds))
    if kinds == _INT_TO_BYTES:
        return _skip_int_to_bytes
    return _skip_items(_skipper(items))


_INT_TO_BYTES = ["int", "bytes"]


def _item_kinds(items: Any) -> list[str]:
    return [_kind(f["type"]) for f in items["fields"]] if _kind(items) == "record" else [_kind(items)]


def _skip_integers(per_item: int) -> Read:
    def skip(decoder: BinaryDecoder) -> None:
        while count := decoder.read_int():
            if count < 0:
                decoder.skip(decoder.read_int())
            else:
                decoder.read_ints(count * per_item)

    return skip


def _skip_int_to_bytes(decoder: BinaryDecoder) -> None:
    while count := decoder.read_int():
        if count < 0:
            decoder.skip(decoder.read_int())
        else:
            decoder.read_int_bytes_dict(count, {})


def _skip_items(skip_item: Read) -> Read:
    def skip(decoder: BinaryDecoder) -> None:
        while count := decoder.read_int():
            if count < 0:
                decoder.skip(decoder.read_int())
            else:
                for _ in range(count):
                    skip_item(decoder)

    return skip
