"""The digest of a file by its bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any


def digest_of(chunks: Iterable[Any]) -> str:
    """Returns the SHA-256 of a file's contents, given in parts, as hexadecimal digits."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()
