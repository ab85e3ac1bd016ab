"""Deletion vectors as Iceberg writes them (Puffin spec: `deletion-vector-v1`)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

from pyroaring import BitMap64


def vector_blob(positions: Iterable[int]) -> bytes:
    content = b"\xd1\xd3\x39\x64" + BitMap64(positions).serialize()
    return struct.pack(">I", len(content)) + content + struct.pack(">I", zlib.crc32(content))
