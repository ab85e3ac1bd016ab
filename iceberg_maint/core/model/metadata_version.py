"""The version number in the name of a table metadata file."""

from __future__ import annotations

import re

_VERSION = re.compile(r"(?:^|/)v?(\d+)(?:-[^/]*)?(?:\.gz)?\.metadata\.json(?:\.gz)?$")
"""The version number in the name of a metadata file. Every commit raises it: `00012-<uuid>.metadata.json`
(Iceberg BaseMetastoreTableOperations.newTableMetadataFilePath), `v12.metadata.json`
(HadoopTableOperations)."""


def metadata_version(metadata_location: str) -> int | None:
    """Returns the version in a metadata file's name, None if the name has none."""
    match = _VERSION.search(metadata_location)
    return int(match.group(1)) if match else None
