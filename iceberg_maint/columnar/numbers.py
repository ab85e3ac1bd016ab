"""Arrow's arrays as NumPy's and back, on the same memory. PyArrow's own conversions import pandas, which takes 0.15 to 0.5 s
of CPU and 40 MB in each worker."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


def numbers_of(values: pa.Array) -> np.ndarray[Any, Any]:
    """Returns numbers without nulls as an array of NumPy."""
    numbers: np.ndarray[Any, Any] = np.from_dlpack(values)
    return numbers


def mask_of(values: pa.BooleanArray) -> Mask:
    """Returns booleans without nulls as an array of NumPy, a copy: Arrow's have a bit each."""
    return numbers_of(values.cast(pa.uint8())).astype(bool)


def array_of_numbers(numbers: Numbers) -> pa.Array:
    """Returns 64-bit integers as an array of Arrow."""
    whole = np.ascontiguousarray(numbers, dtype=np.int64)
    return pa.Array.from_buffers(pa.int64(), len(whole), [None, pa.py_buffer(whole)])


def scalar_of(number: int) -> pa.Int64Scalar:
    """Returns a 64-bit integer as a scalar of Arrow."""
    return array_of_numbers(np.array([number]))[0]


def array_of_mask(mask: Mask) -> pa.BooleanArray:
    """Returns booleans as an array of Arrow, a copy."""
    bits = pa.py_buffer(np.packbits(mask, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, bits])
