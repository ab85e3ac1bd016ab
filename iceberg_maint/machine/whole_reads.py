"""Reads through Arrow that are whole, or fail.

Arrow's S3 client does not compare the length of an answer with the length that it asked for. If a store, or a proxy before
it, ends an answer early and states the shorter length, Arrow returns a buffer of the length asked for, whose end is whatever
the memory held before: possibly the end of another file. (A connection that ends before the stated length is an error.)
"""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa

_MARK_BYTES = 16


def read_whole(stream: pa.NativeFile, location: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
    """Returns the contents of a file, or a part of them: as much of `length` bytes as the file has. Raises OSError if the
    store answers with less."""
    size_bytes = max(0, stream.size() - offset)
    wanted = size_bytes if length is None else min(length, size_bytes)
    contents = np.empty(wanted, np.uint8)
    # An answer that is too short leaves the mark at the end.
    mark = os.urandom(min(_MARK_BYTES, wanted))
    contents[wanted - len(mark) :] = np.frombuffer(mark, np.uint8)
    stream.seek(offset)
    count = stream.readinto(contents) if wanted else 0
    if count != wanted or (wanted >= _MARK_BYTES and contents[wanted - len(mark) :].tobytes() == mark):
        # The words of Arrow for a connection that ends early.
        raise OSError(
            f"AWS Error NETWORK_CONNECTION: the store answered with less than {wanted} bytes of {location}"
        )
    return pa.py_buffer(contents)
