"""Shortage of memory. It is no damage of a file, but Arrow's error for it is one of the errors for damage."""

from __future__ import annotations

import errno

_SIGNS = ("not enough memory", "bad_alloc", "Cannot allocate memory")
"""What the errors of codecs and of the system say of it. Arrow passes them on as errors of input and output."""


def is_shortage(error: BaseException) -> bool:
    """Whether memory ran out."""
    return (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or any(sign in str(error) for sign in _SIGNS)
    )


def raise_shortage(error: BaseException) -> None:
    """Raises MemoryError if memory ran out. Each handler that takes an error of Arrow for damage calls it first."""
    if is_shortage(error):
        raise MemoryError(str(error)) from error
