"""Mutated manifests, manifest lists and metadata files: each is read or refused by name, whatever its bytes are.

    python -m iceberg_maint_tests.catalog.manifests.test_fuzz --seconds 3600 --seed 1

A record that the learned expressions accept is compared with its reading value by value.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DecimalType, DoubleType, FixedType, LongType, NestedField, StringType, UUIDType

from iceberg_maint.catalog.manifests import avro
from iceberg_maint.catalog.manifests.avro_records import RecordReader
from iceberg_maint.catalog.manifests.avro_values import AvroError, long_at
from iceberg_maint.catalog.manifests.reader import _LIST_FIELDS
from iceberg_maint.catalog.table_metadata import parse_metadata
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint_tests.support.catalog.table_files import File, ManifestFile, TableFiles, spec

pytestmark = pytest.mark.seconds

TABLE = TableId.parse("lake.db.t")
_TYPES = (
    LongType(),
    StringType(),
    UUIDType(),
    UUIDType(),
    FixedType(4),
    FixedType(4),
    DecimalType(9, 2),
    DoubleType(),
)
_VALUES = (7, "grün", UUID(int=1), UUID(int=2), b"\x08bcd", b"efgh", Decimal("-1.25"), 0.5)
_HEALTH = (0, 1, 3, 102, 103, 104)
_WHOLE = (
    0,
    1,
    3,
    4,
    134,
    100,
    101,
    102,
    103,
    104,
    132,
    135,
    140,
    143,
    144,
    145,
    108,
    109,
    110,
    137,
    125,
    128,
)
_READS: tuple[tuple[tuple[int, ...], tuple[int, ...] | None], ...] = (
    (_HEALTH, ()),
    ((*_HEALTH, 125, 128), (3, 9)),
    (_WHOLE, None),
    (_LIST_FIELDS, ()),
)
_SPECIAL = (0, 1, 2, 3, 8, 126, 127, 128, 129, 254, 255)
_MOST_SECONDS = 5.0


@dataclass(slots=True)
class Figures:
    """What came of the inputs, by kind of file."""

    counts: Counter[str] = field(default_factory=Counter)
    slowest_seconds: float = 0.0


def seeds(folder: Path) -> dict[str, bytes]:
    """Files to mutate by name. Those of Avro have uncompressed blocks, so that a mutation reaches the records."""
    schema = Schema(*(NestedField(n, f"c{n}", t, required=False) for n, t in enumerate(_TYPES, 1)))
    by = spec(0, *((n, 999 + n, IdentityTransform(), f"c{n}") for n in range(1, len(_TYPES) + 1)))
    table = TableFiles(folder, schema, [by])
    files = {f"manifest v{v}": _manifest(table, by, v, is_deletes=False) for v in (1, 2, 3)}
    files["delete manifest"] = _manifest(table, by, 3, is_deletes=True)
    plain = ManifestFile((File("file:///d/a.parquet", _VALUES),), by, 1, 100)
    table.commit([plain, plain], snapshot_id=100, sequence_number=1, timestamp_ms=1)
    listed = next(folder.rglob("snap-100.avro")).read_bytes()
    files["manifest list"] = _uncompressed(listed)
    files["metadata"] = json.dumps(table.document()).encode()
    files["metadata gz"] = gzip.compress(files["metadata"], mtime=0)
    files |= {f"{name} of Java": _as_java(data) for name, data in files.items() if "manifest v" in name}
    return files


def _manifest(table: TableFiles, by: PartitionSpec, version: int, *, is_deletes: bool) -> bytes:
    bounds = {n: bytes(8) for n in (1, 3, 9)}
    more: dict[str, Any] = {"content": 1, "referenced_data_file": "file:///d/1"} if is_deletes else {}
    rows = tuple(
        File(
            f"file:///d/{'x' * (n % 90)}{n}.parquet",
            (None,) * len(_VALUES) if n % 9 == 8 else _VALUES,
            records=n * 37,
            snapshot_id=100 if version == 1 else None,
            sequence_number=n % 2 or None,
            lower_bounds=bounds,
            upper_bounds=bounds if n % 3 else None,
            split_offsets=(4, 900) if n % 2 else None,
            **more,
        )
        for n in range(60)
    )
    manifest = ManifestFile(rows, by, 1, 100, is_deletes=is_deletes, version=version)
    entry = table.write_manifest(manifest, f"m{version}{is_deletes}.avro")
    return _uncompressed(Path(entry["manifest_path"].removeprefix("file://")).read_bytes())


def container(meta: Mapping[str, bytes], blocks: list[tuple[int, bytes]]) -> bytes:
    """An Avro file of these blocks, uncompressed."""
    header = dict(meta) | {"avro.codec": b"null"}
    pairs = b"".join(_framed(key.encode()) + _framed(value) for key, value in header.items())
    body = b"".join(_number(count) + _framed(block) + bytes(16) for count, block in blocks)
    return b"Obj\x01" + _number(len(header)) + pairs + _number(0) + bytes(16) + body


def _uncompressed(data: bytes) -> bytes:
    meta, start = avro._metadata(data)
    return container(meta, list(avro._blocks(data, start, meta)))


def _as_java(data: bytes) -> bytes:
    """The file as Iceberg's Java writer writes it: each fixed value, no uuid and no decimal, behind its length."""
    meta, start = avro._metadata(data)
    blocks = [
        (
            count,
            block.replace(b"\x02" + _VALUES[4], b"\x02\x08" + _VALUES[4]).replace(
                b"\x02efgh", b"\x02\x08efgh"
            ),
        )
        for count, block in avro._blocks(data, start, meta)
    ]
    return container(meta | {"iceberg.schema": b"{}"}, blocks)


def _framed(value: bytes) -> bytes:
    return _number(len(value)) + value


def _number(value: int) -> bytes:
    rest, encoded = (value << 1) ^ (value >> 63), bytearray()
    while rest > 127:
        encoded.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*encoded, rest])


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The bytes with one to eight mutations."""
    work = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 8))):
        at = rng.randrange(len(work) + 1)
        end = min(len(work), at + rng.choice((1, 1, 2, 4, 16, 200)))
        choice = rng.randrange(8)
        if choice == 0 and at < len(work):
            work[at] ^= 1 << rng.randrange(8)
        elif choice == 1 and at < len(work):
            work[at] = rng.choice(_SPECIAL)
        elif choice == 2:
            del work[at:end]
        elif choice == 3:
            work[at:at] = rng.randbytes(end - at)
        elif choice == 4:
            work[at:at] = work[at:end] * rng.randrange(1, 4)
        elif choice == 5:
            work[at:end] = _number(
                rng.choice((-1, 1, 63, 64, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63)))
            )
        elif choice == 6:
            work[at:end] = b"\xff" * (end - at)
        elif rng.random() < 0.2:
            del work[at:]
    return bytes(work)


def inputs(files: Mapping[str, bytes], rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Mutated files without end. Half of those of Avro are well formed around a mutated block."""
    names = list(files)
    while True:
        name = rng.choice(names)
        data = files[name]
        if "metadata" not in name and rng.random() < 0.5:
            meta, start = avro._metadata(data)
            blocks = [(count, mutated(block, rng)) for count, block in avro._blocks(data, start, meta)]
            yield name, container(meta, blocks)
        else:
            yield name, mutated(data, rng)


def check(name: str, data: bytes, rng: random.Random) -> str:
    """Reads a file, and returns whether it was read or refused. Fails for anything else."""
    if "metadata" in name:
        return _outcome(partial(parse_metadata, TABLE, "file:///v1.json", data), IcebergMaintError)
    field_ids, keys = rng.choice(_READS)
    outcome = _outcome(partial(_read, data, field_ids, keys), AvroError)
    _outcome(partial(avro.read_metadata, data), AvroError)
    return outcome


def _outcome(read: Callable[[], object], refusal: type[Exception]) -> str:
    try:
        read()
    except refusal:
        return "refused"
    return "read"


def _read(data: bytes, field_ids: tuple[int, ...], keys: tuple[int, ...] | None) -> None:
    try:
        columns = avro.read_columns(data, field_ids, keys)
    finally:
        _compare(data, field_ids, keys)
    assert len({len(column) for column in columns}) == 1


def _compare(data: bytes, field_ids: tuple[int, ...], keys: tuple[int, ...] | None) -> None:
    """The learned expressions and the reading by value give the same values, or both refuse."""
    try:
        meta, start = avro._metadata(data)
        schema = meta["avro.schema"].decode()
        learned = [avro._layout(schema, field_ids, keys, prefixed)[0] for prefixed in (False, True)]
        blocks = list(avro._blocks(data, start, meta))
    except Exception:  # noqa: BLE001 - `read_columns` has refused the file
        return
    for prefixed, reader in zip((False, True), learned, strict=True):
        fresh = RecordReader(reader._fields, keys, prefixed=prefixed)
        for count, block in blocks:
            assert _records(reader, block, count) == _records(fresh, block, count), (prefixed, block)


def _records(reader: RecordReader, block: bytes, count: int) -> str:
    rows: list[tuple[Any, ...]] = []
    try:
        end = reader(block, count, rows)
        return repr((end, [list(c) for c in reader.columns(rows)] if rows else []))
    except (ValueError, IndexError, KeyError, ArithmeticError):
        return "refused"


def fuzz(seed: int, is_done: Callable[[int, float], bool]) -> Figures:
    """Reads inputs until the number of them and the seconds are enough."""
    figures, rng, began = Figures(), random.Random(seed), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        files = seeds(Path(folder))
        for name, data in files.items():
            if "metadata" not in name:
                for ids, keys in _READS:
                    avro.read_columns(data, ids, keys)
            assert check(name, data, rng) == "read"
        for number, (name, data) in enumerate(inputs(files, rng)):
            start = time.monotonic()
            if is_done(number, start - began):
                return figures
            try:
                figures.counts[f"{name}: {check(name, data, rng)}"] += 1
            except BaseException:
                print(f"seed {seed}, input {number}, {name}: {data.hex()}")
                raise
            figures.slowest_seconds = max(figures.slowest_seconds, time.monotonic() - start)
    raise AssertionError("inputs do not end")


@pytest.mark.parametrize("seed", range(2))
def test_mutated_files_are_read_or_refused_by_name(seed: int) -> None:
    figures = fuzz(seed, lambda number, _: number == 200)
    assert figures.counts.total() == 200
    assert figures.slowest_seconds < _MOST_SECONDS
    assert min(sum(n for k, n in figures.counts.items() if k.endswith(e)) for e in ("read", "refused")) > 20


def test_integer_of_more_than_ten_bytes_is_refused() -> None:
    with pytest.raises(AvroError, match="more than ten bytes"):
        long_at(b"\xff" * 12, 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    result = fuzz(given.seed, lambda _, seconds: seconds >= given.seconds)
    print(
        json.dumps(
            {
                "seed": given.seed,
                "seconds": given.seconds,
                "inputs": result.counts.total(),
                "slowest_seconds": round(result.slowest_seconds, 3),
                **dict(sorted(result.counts.items())),
            }
        )
    )
