"""Paths of local files that another program reads from a setting of its own."""

from __future__ import annotations

import re
from pathlib import Path

from iceberg_maint.errors import ConfigurationError

# Spark reads the comma as a separator, and the others as patterns, fragments and escapes of a URI.
_NOT_LITERAL = {
    "Spark": re.compile(r"[,*?\[\]{}#%\\\s]"),
    # Java's options are separated by spaces, may be quoted, and separate two archives by a colon. Java replaces %p.
    "Java": re.compile(r"[:%'\"\\\s]"),
}


def local_file(text: str, where: str, reader: str) -> Path:
    """The path in the setting `where`, which `reader` (Spark or Java) will read. Reads no file.

    Raises ConfigurationError ICM-100 for a path that is not absolute or that the reader would misread.
    """
    if not text.startswith("/"):
        raise ConfigurationError(
            "ICM-100",
            f"{where} is '{text}'. It must be an absolute path of a local file.",
            "write the absolute path.",
        )
    if forbidden := _NOT_LITERAL[reader].search(text):
        raise ConfigurationError(
            "ICM-100",
            f"{where} is '{text}'. It must not contain {forbidden[0]!r}, which {reader} would not read literally.",
            "rename the file or its folder.",
        )
    return Path(text)
