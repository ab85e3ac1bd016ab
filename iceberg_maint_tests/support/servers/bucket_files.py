"""Buckets whose objects are files of this machine, as a file system for DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem


class BucketFiles(DirFileSystem):
    """Addresses `s3://BUCKET/KEY` are files `BUCKET/KEY` of a folder."""

    protocol = "s3"

    def __init__(self, buckets: Path) -> None:
        super().__init__(str(buckets), LocalFileSystem())

    def _join(self, path: Any) -> Any:
        return super()._join(path.removeprefix("s3://") if isinstance(path, str) else path)
