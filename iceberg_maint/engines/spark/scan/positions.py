"""Positions of deleted rows: collects them from Spark as bitmaps, writes them with Iceberg, reads them back.

A position is the ordinal of a row in its data file (`_pos`), in [0, 2^63). Spark converts the rows to bitmaps of
4 KiB, so at most one bit per row of the files crosses to this process, which keeps it in a Roaring bitmap. Iceberg's
writers write the files.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np
from pyroaring import BitMap64

from iceberg_maint.core.outcomes.verification import Fingerprint
from iceberg_maint.engines.spark.jvm.bridge import Bridge
from iceberg_maint.engines.spark.jvm.conversion import content_files_from_json, content_jsons, local_frame
from iceberg_maint.engines.spark.jvm.functions import OBJECT, JavaFunctions
from iceberg_maint.engines.spark.scan.iceberg_reader import read_serialized
from iceberg_maint.engines.spark.scan.position_delete_file import MOST_POSITIONS, codec_of, encoded
from iceberg_maint.errors import RefusedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Positions = Mapping[str, BitMap64]
"""Positions by the path of their data file. Every file in it has at least one position."""

FINGERPRINT_ALGORITHM = "sha256-positions-1"
"""Sums modulo 2^64 of the four big-endian quarters of SHA-256(path in UTF-8, NUL, positions ascending
as 64-bit little-endian integers) over the data files. Positions of different files add up."""

_BUCKET_BITS = 15
"""The bits of a position within one bitmap: Spark's `bitmap_construct_agg` makes bitmaps of 2^15 bits."""
_MAGIC = b"\xd1\xd3\x39\x64"


def gather(bridge: Bridge, rows: DataFrame, paths: Sequence[str], partitions: int) -> dict[str, BitMap64]:
    """The positions in a frame with the columns `_file` and `_pos`. `paths` contains every `_file`. Duplicates
    count once. For `partitions` see `gather_numbered`."""
    from pyspark.sql import functions as F

    if not paths:
        return {}
    numbers = local_frame(bridge, "number long, _file string", enumerate(paths))
    numbered = rows.join(F.broadcast(numbers), "_file").select("number", "_pos")
    return gather_numbered(numbered, paths, partitions)


def gather_numbered(rows: DataFrame, paths: Sequence[str], partitions: int) -> dict[str, BitMap64]:
    """The positions in a frame with the columns `number`, an index of `paths`, and `_pos`, both
    64-bit numbers. Duplicates count once.

    A 64-bit number of the file and the bitmap distributes the rows over `partitions` partitions of about the same
    size.
    """
    from pyspark.sql import functions as F

    bucket = F.shiftright("_pos", _BUCKET_BITS)
    bit = F.col("_pos").bitwiseAND((1 << _BUCKET_BITS) - 1)
    # A batch has fewer than 2^31 files; at 2^32 buckets a file would have 2^47 rows.
    place = F.shiftleft("number", 32).bitwiseOR(bucket)
    placed = rows.select(place.alias("place"), bit.alias("bit")).repartition(partitions, "place")
    gathered: dict[str, BitMap64] = {}
    for place_number, bits in placed.groupBy("place").agg(F.bitmap_construct_agg("bit")).collect():
        number, start = place_number >> 32, (place_number & 0xFFFFFFFF) << _BUCKET_BITS
        ones = np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little"))
        gathered.setdefault(paths[number], BitMap64()).update(ones.astype(np.uint64) + np.uint64(start))
    return gathered


def union(parts: Iterable[Positions]) -> dict[str, BitMap64]:
    """All positions of the parts, as a new mapping. The parts do not change."""
    joined: dict[str, BitMap64] = {}
    for part in parts:
        for path, positions in part.items():
            joined[path] = joined[path] | positions if path in joined else positions
    return joined


def count(positions: Positions) -> int:
    """The number of positions in all files."""
    return sum(len(p) for p in positions.values())


def fingerprint(positions: Positions) -> Fingerprint:
    """The fingerprint of a set of positions."""
    sums = [0, 0, 0, 0]
    for path, bitmap in positions.items():
        body = np.asarray(bitmap.to_array(), "<u8").tobytes()
        digest = hashlib.sha256(path.encode() + b"\0" + body).digest()
        for i in range(4):
            sums[i] = (sums[i] + int.from_bytes(digest[8 * i : 8 * i + 8], "big")) & ((1 << 64) - 1)
    return Fingerprint(count(positions), ((sums[0], sums[1]), (sums[2], sums[3])), FINGERPRINT_ALGORITHM)


def difference(computed: Positions, read_back: Positions) -> str:
    """A sentence about the first data file whose positions differ; "" if none differ."""
    nothing = BitMap64()
    for path in sorted(computed.keys() | read_back.keys()):
        expected, actual = computed.get(path, nothing), read_back.get(path, nothing)
        if expected != actual:
            return (
                f"{len(expected)} positions of {path} were to be deleted, {len(actual)} are in the files "
                f"written, {len(expected & actual)} are the same"
            )
    return ""


# writing


def write_deletion_vectors(
    bridge: Bridge, table: Any, positions: Positions, data_files: Mapping[str, Any]
) -> list[Any]:
    """Writes one deletion vector per data file, all in one Puffin file. Returns Java DeleteFiles.

    `data_files` are the Java DataFiles by path. A vector has the spec and partition of its data file.
    """
    if not positions:
        return []
    functions, iceberg = bridge.once(JavaFunctions), bridge.iceberg
    factory = iceberg.io.OutputFileFactory.builderFor(table, 0, 0).format(iceberg.FileFormat.PUFFIN).build()
    specs = table.specs()
    # The writer merges no older deletes, because the positions already contain theirs.
    # Java: anything -> null
    null = functions.invoke.MethodHandles.constant(functions.class_of(OBJECT), None)
    nothing = functions.function(functions.drop_arguments(null, OBJECT))
    with closing(iceberg.deletes.BaseDVFileWriter(factory, nothing)) as writer:
        for path, bitmap in positions.items():
            file = data_files[path]
            writer.delete(path, position_index(bridge, path, bitmap), specs[file.specId()], file.partition())
    return list(bridge.iterate(writer.result().deleteFiles()))


def write_position_deletes(
    bridge: Bridge, table: Any, positions: Positions, data_files: Mapping[str, Any]
) -> list[Any]:
    """Writes one position delete file per data file, for format v2. Returns Java DeleteFiles that have a
    `referenced_data_file`. Raises RefusedError ICM-180 for a compression level that is none.
    """
    iceberg = bridge.iceberg
    properties = table.properties()
    name = properties.getOrDefault("write.format.default", "parquet")
    format_name = properties.getOrDefault("write.delete.format.default", name)
    file_format = iceberg.FileFormat.fromString(format_name)
    output = (
        iceberg.io.OutputFileFactory.builderFor(table, 0, 0).format(file_format).suffix("deletes").build()
    )
    try:
        codec = codec_of(bridge.texts_by_key(properties)) if format_name == "parquet" else None
    except ValueError as why:
        fix = "correct or unset the property of the table."
        raise RefusedError("ICM-180", f"{table.name()}: {why}.", fix) from why
    writers = getattr(iceberg.data, "GenericFileWriterFactory$Builder")(table).build()
    specs = table.specs()
    places = {} if codec is None else _places(bridge, table, positions, data_files)
    large = {path for path, bitmap in positions.items() if path not in places or len(bitmap) > MOST_POSITIONS}
    idle_consumers: SimpleQueue[tuple[Any, Any, Any]] = SimpleQueue()
    for _ in range(min(len(large), _threads(bridge))):  # Made before a thread needs one.
        idle_consumers.put(_consumer_of_positions(bridge))

    def write_file(path: str) -> str | Any:
        """Writes the file of a data file. Returns its content-file JSON, or the Java file."""
        file = data_files[path]
        spec, partition = specs[file.specId()], file.partition()
        # With the empty partition of an unpartitioned spec Iceberg would write to `data//NAME`. On S3, Arrow refuses
        # such a key.
        output_file = (
            output.newOutputFile() if spec.isUnpartitioned() else output.newOutputFile(spec, partition)
        )
        if codec is not None and path not in large:
            contents, content = encoded(path, positions[path], codec)
            location = output_file.encryptingOutputFile()
            with closing(location.create()) as stream:
                stream.write(contents)
            return json.dumps({**places[path], "file-path": str(location.location()), **content})
        path_reference, writer_reference, consumer = entry = idle_consumers.get()
        try:
            with closing(writers.newPositionDeleteWriter(output_file, spec, partition)) as writer:
                path_reference.set(path)
                writer_reference.set(writer)
                position_index(bridge, path, positions[path]).forEach(consumer)
        finally:
            idle_consumers.put(entry)
        builder = iceberg.FileMetadata.deleteFileBuilder(spec).copy(writer.toDeleteFile())
        return builder.withReferencedDataFile(path).build()

    with ThreadPoolExecutor(_threads(bridge), "iceberg-maint-positions") as pool:
        written = list(pool.map(write_file, positions))
    by_json = content_files_from_json(bridge, table, [w for w in written if isinstance(w, str)])
    from_json = (by_json.get(i) for i in range(by_json.size()))
    return [next(from_json) if isinstance(w, str) else w for w in written]


def _consumer_of_positions(bridge: Bridge) -> tuple[Any, Any, Any]:
    """A consumer of positions, and the two `AtomicReference`s that it reads: the path of the data
    file and the `PositionDeleteWriter`. The result is (path, writer, consumer).

    One consumer serves many files, because the JVM compiles code for each method handle.
    """
    functions = bridge.once(JavaFunctions)
    delete_class = "org.apache.iceberg.deletes.PositionDelete"
    writer_class = "org.apache.iceberg.deletes.PositionDeleteWriter"
    path_class = "java.lang.CharSequence"
    delete = bridge.iceberg.deletes.PositionDelete.create()
    path, writer = (bridge.jvm.java.util.concurrent.atomic.AtomicReference() for _ in range(2))
    # Java: position -> writer.get().write(delete.set(path.get(), position))
    set_position = functions.bound(delete, delete_class, "set", delete_class, path_class, "long")
    write = functions.method(writer_class, "write", "void", delete_class)
    consumer = functions.compose(
        functions.bind_first_to_reference(set_position, path, path_class),
        functions.bind_first_to_reference(write, writer, writer_class),
    )
    return path, writer, functions.as_interface("java.util.function.LongConsumer", consumer)


def _places(
    bridge: Bridge, table: Any, paths: Iterable[str], data_files: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """What the content-file JSON of a delete file has in common with its data file, by path."""
    known = list(paths)
    texts = content_jsons(bridge, table, [data_files[path] for path in known])
    return {path: _place(text) for path, text in zip(known, texts, strict=True)}


def _place(text: str) -> dict[str, Any]:
    content = json.loads(text)
    place = {name: content[name] for name in ("spec-id", "partition")}
    return {**place, "content": "position-deletes", "file-format": "parquet"}


def read_back(bridge: Bridge, table: Any, delete_files: Sequence[Any]) -> dict[str, BitMap64]:
    """The positions in delete files, by Iceberg's reader. `delete_files` are position delete files and
    deletion vectors that reference one data file each. The positions of a data file with several are joined."""
    return union({path: positions} for path, positions in read_each(bridge, table, delete_files))


def read_each(bridge: Bridge, table: Any, delete_files: Sequence[Any]) -> list[tuple[str, BitMap64]]:
    """The data file that each of these delete files references, and its positions in that file, by Iceberg's reader."""
    return [(path, parse(content)) for path, content in read_serialized(bridge, table, delete_files)]


def _threads(bridge: Bridge) -> int:
    return min(8, bridge.parallelism)


# the blob `deletion-vector-v1` (Puffin spec)


def blob(positions: BitMap64) -> bytes:
    """Positions as a deletion vector's blob: length, magic, portable 64-bit Roaring bitmap, CRC-32."""
    body = _MAGIC + positions.serialize()
    return len(body).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")


def parse(content: bytes) -> BitMap64:
    """The positions of such a blob. Raises ValueError if the bytes are no such blob or are damaged."""
    length, body, checksum = content[:4], content[4:-4], content[-4:]
    if int.from_bytes(length, "big") != len(body) or body[:4] != _MAGIC:
        raise ValueError("no deletion vector")
    if zlib.crc32(body).to_bytes(4, "big") != checksum:
        raise ValueError("a deletion vector's checksum is wrong")
    return BitMap64.deserialize(body[4:])


def position_index(bridge: Bridge, path: str, positions: BitMap64) -> Any:
    """The positions as Iceberg's `PositionDeleteIndex`."""
    content = blob(positions)
    document = {
        "spec-id": 0,
        "content": "POSITION_DELETES",
        "file-path": "memory",
        "file-format": "PUFFIN",
        "file-size-in-bytes": len(content),
        "record-count": len(positions),
        "referenced-data-file": path,
        "content-offset": 0,
        "content-size-in-bytes": len(content),
    }
    node = bridge.iceberg.util.JsonUtil.mapper().readTree(json.dumps(document))
    file = bridge.iceberg.ContentFileParser.fromJson(node, bridge.iceberg.PartitionSpec.unpartitioned())
    return bridge.iceberg.deletes.PositionDeleteIndex.deserialize(content, file)
