"""Generates record decoders for a schema, as source that Python compiles.

A manifest entry has about two dozen fields, and most are skipped. With one Python call per field, the
calls take longer than the decoding. In a function generated for the schema, every field is one line. Only
numbers of a file's schema enter the source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any
from uuid import UUID

from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.utils.decimal import bytes_to_decimal

Node = Any
"""A type of an Avro schema in which named types are replaced by their definitions."""
RecordDecoder = Callable[[BinaryDecoder, int], list[tuple[Any, ...]]]
"""(decoder, number of records) → the requested fields of each record, in the order of the file."""

_METHODS = (
    *("read", "read_boolean", "read_int", "read_ints", "read_float", "read_utf8", "read_bytes", "skip"),
    *("skip_boolean", "skip_int", "skip_float", "skip_double", "skip_utf8", "skip_bytes"),
)
_READ = {
    "null": "None",
    "boolean": "read_boolean()",
    "int": "read_int()",
    "long": "read_int()",
    "float": "read_float()",
    # PyIceberg 0.12's compiled read_double returns the value rounded to a float.
    "double": "double(read(8))[0]",
    "string": "read_utf8()",
    "bytes": "read_bytes()",
}
_SKIP = {
    "null": "pass",
    "boolean": "skip_boolean()",
    "int": "skip_int()",
    "long": "skip_int()",
    "float": "skip_float()",
    "double": "skip_double()",
    "string": "skip_utf8()",
    "bytes": "skip_bytes()",
}


def record_decoder(fields: Sequence[tuple[Node, bool]], map_keys: tuple[int, ...] | None) -> RecordDecoder:
    """Returns a decoder of records of these fields (type, whether it is requested). Structs become
    tuples, decimals and uuids keep their types. A map from integers to integers becomes its pairs, ordered
    by key. A map from integers to bytes becomes the values of `map_keys`; None: its pairs, ordered by key.
    Raises KeyError for a type that Avro does not have."""
    source = _Source(map_keys)
    lines, values = [], []
    for number, (node, requested) in enumerate(fields):
        if requested:
            lines.append(f"value_{number} = {source.read(node)}")
            values.append(f"value_{number}, ")
        else:
            lines += source.skip(node)
    body = [*lines, f"add(({''.join(values)}))"]
    main = ["records = []", "add = records.append", "for _ in range(count):", *_in(body), "return records"]
    source.function("decode", "decoder, count", main)
    decode: RecordDecoder = source.compiled()["decode"]
    return decode


class _Source:
    """Functions as lines of source, and the constants that they name."""

    def __init__(self, map_keys: tuple[int, ...] | None) -> None:
        self._lines: list[str] = []
        self._names = 0
        self._constants: dict[str, Any] = {
            "double": Struct("<d").unpack,
            "decimal": bytes_to_decimal,
            "uuid": UUID,
            "bytes_map": _bytes_pairs if map_keys is None else _of_keys(map_keys),
            "integer_pairs": _integer_pairs,
            "no_branch": _no_branch,
        }

    def function(self, name: str, parameters: str, body: Sequence[str]) -> None:
        """Adds a function. The decoder's methods are its local names."""
        used = [m for m in _METHODS if any(f"{m}(" in line for line in body)]
        bound = [f"{m} = decoder.{m}" for m in used]
        self._lines += [f"def {name}({parameters}):", *_in((*bound, *body))]

    def compiled(self) -> dict[str, Any]:
        names = dict(self._constants)
        exec(compile("\n".join(self._lines), "<avro records>", "exec"), names)  # noqa: S102
        return names

    def read(self, node: Node) -> str:
        """Returns an expression that reads a value."""
        kind = kind_of(node)
        if kind == "union":
            return self._union(node)
        if kind == "record":
            return f"({''.join(self.read(f['type']) + ', ' for f in node['fields'])})"
        if kind == "array":
            return self._array(node["items"])
        if kind not in ("fixed", "bytes"):
            return _READ[kind]
        value = f"read({int(node['size'])})" if kind == "fixed" else _READ[kind]
        logical = node.get("logicalType") if isinstance(node, dict) else None
        if logical == "decimal":
            return f"decimal({value}, {int(node.get('scale', 0))})"
        return f"uuid(bytes={value})" if logical == "uuid" else value

    def skip(self, node: Node) -> list[str]:
        """Returns lines that skip a value."""
        kind = kind_of(node)
        if kind == "union":
            return self._skip_union(node)
        if kind == "record":
            return [line for f in node["fields"] for line in self.skip(f["type"])] or ["pass"]
        if kind == "array":
            kinds = item_kinds(node["items"])
            if all(k in ("int", "long") for k in kinds):
                return self._skip_items(lambda count: [f"read_ints({count} * {len(kinds)})"])
            return self._skip_items(lambda count: _times(count, self.skip(node["items"])))
        if kind == "map":
            return self._skip_items(lambda count: _times(count, ["skip_utf8()", *self.skip(node["values"])]))
        return [f"skip({int(node['size'])})"] if kind == "fixed" else [_SKIP[kind]]

    def _name(self, what: str) -> str:
        self._names += 1
        return f"{what}_{self._names}"

    def _union(self, branches: Sequence[Node]) -> str:
        """Reads a union. Iceberg's unions are null and one type, in either order; other unions are read
        as well."""
        if len(branches) == 2 and "null" in branches:
            present = 1 - branches.index("null")
            return f"({self.read(branches[present])} if read_int() == {present} else None)"
        branch = self._name("branch")
        chosen = [f"({branch} := read_int())", *[branch] * len(branches)]
        values = (f"{self.read(b)} if {chosen[i]} == {i} else " for i, b in enumerate(branches))
        return f"({''.join(values)}no_branch({branch}))"

    def _skip_union(self, branches: Sequence[Node]) -> list[str]:
        if len(branches) == 2 and "null" in branches:
            present = 1 - branches.index("null")
            return [f"if read_int() == {present}:", *_in(self.skip(branches[present]))]
        branch = self._name("branch")
        lines = [f"{branch} = read_int()"]
        for number, node in enumerate(branches):
            lines += [f"{'elif' if number else 'if'} {branch} == {number}:", *_in(self.skip(node))]
        return [*lines, "else:", *_in([f"no_branch({branch})"])]

    def _array(self, items: Node) -> str:
        if item_kinds(items) == ["int", "bytes"]:
            return "bytes_map(decoder)"
        if item_kinds(items) == ["int", "long"]:
            return "integer_pairs(decoder)"
        name, value = self._name("array"), self.read(items)
        loop = ["if count < 0:", *_in(["skip_int()"]), f"found += [{value} for _ in range(abs(count))]"]
        body = ["found = []", "while count := read_int():", *_in(loop), "return tuple(found)"]
        self.function(name, "decoder", body)
        return f"{name}(decoder)"

    def _skip_items(self, of_count: Callable[[str], list[str]]) -> list[str]:
        """Passes over blocks: a negative count is followed by the block's size in bytes."""
        count = self._name("count")
        jump, each = ["skip(read_int())"], of_count(count)
        body = [f"if {count} < 0:", *_in(jump), "else:", *_in(each)]
        return [f"while {count} := read_int():", *_in(body)]


def kind_of(node: Node) -> str:
    """The type's name; `union` for a list of types."""
    return str(node) if isinstance(node, str) else "union" if isinstance(node, list) else str(node["type"])


def item_kinds(items: Node) -> list[str]:
    """Returns the types of the fields of an array's items, or of the items if they are not records."""
    return [kind_of(f["type"]) for f in items["fields"]] if kind_of(items) == "record" else [kind_of(items)]


def _no_branch(branch: int) -> None:
    raise ValueError(f"a union has no branch {branch}")


def _of_keys(keys: tuple[int, ...]) -> Callable[[BinaryDecoder], tuple[bytes | None, ...]]:
    def values(decoder: BinaryDecoder) -> tuple[bytes | None, ...]:
        found = _bytes_map(decoder)
        return tuple([found.get(key) for key in keys])

    return values


def _bytes_pairs(decoder: BinaryDecoder) -> tuple[tuple[int, bytes], ...]:
    return tuple(sorted(_bytes_map(decoder).items()))


def _bytes_map(decoder: BinaryDecoder) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    while count := decoder.read_int():
        if count < 0:
            decoder.skip_int()
        decoder.read_int_bytes_dict(abs(count), found)
    return found


def _integer_pairs(decoder: BinaryDecoder) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    while count := decoder.read_int():
        if count < 0:
            decoder.skip_int()
        flat = decoder.read_ints(2 * abs(count))
        found += zip(flat[::2], flat[1::2], strict=True)
    return tuple(sorted(found))


def _times(count: str, lines: Sequence[str]) -> list[str]:
    return [f"for _ in range({count}):", *_in(lines)]


def _in(lines: Sequence[str]) -> list[str]:
    """Returns the lines with one more level of indentation."""
    return [f"    {line}" for line in lines]
