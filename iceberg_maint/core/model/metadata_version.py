"""The version number in the name of a table metadata file."""

from __future__ import annotations

import re

_VERSION = re.compile(r"(?:^|/)v?(\d+)(?:-[^/]*)?(?:\.gz)?\.metadata\.json(?:\.gz)?$")
"""The version in the name of a metadata file, which every commit raises: `00012-<uuid>.metadata.json` (Iceberg
BaseMetastoreTableOperations.newTableMetadataFilePath), `v12.metadata.json` (HadoopTableOperations)."""


def metadata_version(metadata_location: str) -> int | None:
    """The version in a metadata file's name, None where it has none."""
    found = _VERSION.search(metadata_location)
    return int(found.group(1)) if found else None
