"""Encodes the position delete file of one data file with Arrow. For a small file Iceberg's writer takes ten times the CPU."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from pyroaring import BitMap64

FILE_PATH_ID, POSITION_ID = 2147483546, 2147483545
MOST_POSITIONS = 4 * 1024 * 1024
"""Positions in one row group, at most."""
_SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {
            "id": FILE_PATH_ID,
            "name": "file_path",
            "required": True,
            "type": "string",
            "doc": "Path of a file in which a deleted row is stored",
        },
        {
            "id": POSITION_ID,
            "name": "pos",
            "required": True,
            "type": "long",
            "doc": "Ordinal position of a deleted row in the data file",
        },
    ],
}
_FIELD_ID = "PARQUET:field_id"
_CODECS: Mapping[str, tuple[str, int | None]] = {
    "zstd": ("zstd", 3),
    "gzip": ("gzip", 6),
    "snappy": ("snappy", None),
    "uncompressed": ("none", None),
}
"""Iceberg's name of a codec: Arrow's name, and the default level of Parquet's Java writer."""
_PREFIXES = ("write.delete.parquet.", "write.parquet.")


def codec_of(properties: Mapping[str, str]) -> tuple[str, int | None] | None:
    """Returns Arrow's codec and level for the position deletes of a table, None if Iceberg must write them. Raises ValueError
    for a level that the codec does not have, with the property, its value and the rule."""

    def property_of(name: str) -> str:
        return next((p + name for p in _PREFIXES if p + name in properties), "")

    if properties.get("encryption.key-id"):
        return None
    # Iceberg's codec for a table that was created before 1.4 and names none.
    codec = _CODECS.get((properties.get(property_of("compression-codec")) or "gzip").lower())
    level = property_of("compression-level")
    if codec is None or codec[1] is None or not level:
        return codec
    allowed = range(-1, 10) if codec[0] == "gzip" else range(-(2**31), 2**31)
    try:
        return codec[0], allowed[allowed.index(int(properties[level]))]
    except ValueError as why:
        rule = "a whole number from -1 to 9" if codec[0] == "gzip" else "a whole number"
        raise ValueError(f"{level} = {properties[level]}; it must be {rule}") from why


def encoded(path: str, positions: BitMap64, codec: tuple[str, int | None]) -> tuple[bytes, dict[str, Any]]:
    """Returns the contents of the file that deletes these positions of the data file at `path`, and the part of its
    content-file JSON that follows from them, as Iceberg's writer states it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    numbers = np.asarray(positions.to_array(), dtype=np.int64)
    paths = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(numbers), np.int32)), pa.array([path]))
    schema = pa.schema(
        [
            pa.field("file_path", paths.type, nullable=False, metadata={_FIELD_ID: str(FILE_PATH_ID)}),
            pa.field("pos", pa.int64(), nullable=False, metadata={_FIELD_ID: str(POSITION_ID)}),
        ]
    )
    sink = pa.BufferOutputStream()
    name, level = codec
    with pq.ParquetWriter(
        sink,
        schema,
        compression=name,
        compression_level=level,
        use_dictionary=["file_path"],
        write_page_checksum=True,
        store_schema=False,
    ) as writer:
        writer.add_key_value_metadata({"iceberg.schema": json.dumps(_SCHEMA), "delete-type": "position"})
        writer.write_table(pa.table([paths, pa.array(numbers)], schema=schema), row_group_size=MOST_POSITIONS)
    contents = sink.getvalue().to_pybytes()
    group = pq.read_metadata(pa.BufferReader(contents)).row_group(0)
    sizes = [group.column(i).total_compressed_size for i in range(2)]
    text = path.encode().hex().upper()
    bounds = [int(n).to_bytes(8, "little").hex().upper() for n in (numbers[0], numbers[-1])]
    return contents, {
        "file-size-in-bytes": len(contents),
        "record-count": len(numbers),
        "column-sizes": _by_id(*sizes),
        "lower-bounds": _by_id(text, bounds[0]),
        "upper-bounds": _by_id(text, bounds[1]),
        "split-offsets": [4],
        "referenced-data-file": path,
    }


def _by_id(of_path: Any, of_position: Any) -> dict[str, list[Any]]:
    return {"keys": [FILE_PATH_ID, POSITION_ID], "values": [of_path, of_position]}
