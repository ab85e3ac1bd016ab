"""Reads selected fields of Avro object container files, on PyIceberg's compiled decoder.

Iceberg's manifests and manifest lists carry field ids. A reader names the ids it needs, and the other
fields are skipped without creating objects. PyIceberg's own reader tree is not used, for three reasons:
it cannot resolve a named type that is used twice (two partition fields of equal decimal, uuid or fixed
type), it makes a Python call per field, and it resolves the schema again for every file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pyiceberg.avro.codecs import KNOWN_CODECS
from pyiceberg.avro.decoder import BinaryDecoder, new_decoder

from iceberg_maint.catalog.manifests.avro_codegen import RecordDecoder, record_decoder

Column = list[Any]

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_NAMED = frozenset({"record", "fixed", "enum"})


class AvroError(ValueError):
    """The file is not an Avro container, or its bytes disagree with its schema."""


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
    decoder = new_decoder(data)
    columns: list[Column] = [[] for _ in field_ids]
    try:
        schema, decompress, sync = _header(decoder)
        decode, places = _layout(schema, field_ids, map_keys)
        for count, block in _blocks(decoder, len(data), decompress, sync):
            _append(columns, places, _records(block, count, decode))
    except AvroError:
        raise
    except Exception as error:  # the decoder, the codecs and the schema each raise their own errors
        raise AvroError(f"{type(error).__name__}: {error}") from error
    return columns


def read_metadata(data: bytes) -> dict[str, bytes]:
    """Returns the key-value metadata of the file's header. Raises AvroError."""
    try:
        return _metadata(new_decoder(data))
    except AvroError:
        raise
    except Exception as error:  # the decoder raises its own
        raise AvroError(f"{type(error).__name__}: {error}") from error


def _append(columns: list[Column], places: Sequence[int | None], records: Sequence[tuple[Any, ...]]) -> None:
    if not records:
        return
    values = tuple(zip(*records, strict=True))
    absent = (None,) * len(records)
    for column, place in zip(columns, places, strict=True):
        column.extend(absent if place is None else values[place])


def _records(block: bytes, count: int, decode: RecordDecoder) -> list[tuple[Any, ...]]:
    decoder = new_decoder(block)
    records = decode(decoder, count)
    if decoder.tell() != len(block):
        raise AvroError(f"{count} records end at byte {decoder.tell()} of a block of {len(block)}")
    return records


def _metadata(decoder: BinaryDecoder) -> dict[str, bytes]:
    if decoder.read(len(_MAGIC)) != _MAGIC:
        raise AvroError("not an Avro object container file")
    meta: dict[str, bytes] = {}
    while count := decoder.read_int():
        if count < 0:
            decoder.skip_int()
        for _ in range(abs(count)):
            key = decoder.read_utf8()
            meta[key] = decoder.read_bytes()
    return meta


def _header(decoder: BinaryDecoder) -> tuple[str, Callable[[bytes], bytes] | None, bytes]:
    meta = _metadata(decoder)
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
        # The compiled decoder does not check bounds: it would read on in other memory.
        if not 0 <= size_bytes <= length - decoder.tell() - _SYNC_BYTES:
            raise AvroError(f"the file ends within a block of {size_bytes} bytes")
        block = decoder.read(size_bytes)
        if decoder.read(_SYNC_BYTES) != sync:
            raise AvroError("a block does not end with the file's sync marker")
        yield count, decompress(block) if decompress else block


@lru_cache(maxsize=256)
def _layout(
    schema: str, field_ids: tuple[int, ...], map_keys: tuple[int, ...] | None
) -> tuple[RecordDecoder, tuple[int | None, ...]]:
    """Returns the decoder of the schema's records, and for each requested id its place in the result."""
    fields = list(_flattened(json.loads(schema), {}))
    decoded_ids = [field_id for field_id, _ in fields if field_id in field_ids]
    decode = record_decoder([(node, field_id in field_ids) for field_id, node in fields], map_keys)
    return decode, tuple(decoded_ids.index(i) if i in decoded_ids else None for i in field_ids)


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
