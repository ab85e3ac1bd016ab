"""The rows of the lake's tables by DuckDB, from a copy of the bucket on this machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from iceberg_maint.demo.duckdb_reader import Comparison, DuckDBReader
from iceberg_maint_tests.qualification.cluster import store as s3


class Mirror(DirFileSystem):  # type: ignore[misc]
    """The copy of the bucket, for the addresses of the bucket."""

    protocol = "s3"

    def _join(self, path: Any) -> Any:
        prefix = f"s3://{s3.BUCKET}/"
        return super()._join(path.removeprefix(prefix) if isinstance(path, str) else path)


class Rows:
    """The rows of each table at `copy`, to compare."""

    def __init__(self, folder: Path, tables: Sequence[str]) -> None:
        self._folder, self._tables = folder, tables
        self._bucket = folder / "bucket"
        self._reader = DuckDBReader(Mirror(str(self._bucket), LocalFileSystem()))

    def copy(self) -> None:
        """Copies the present rows of every table."""
        s3.mirror("wh/", self._bucket)
        (self._folder / "before").mkdir(exist_ok=True)
        for table in self._tables:
            self._reader.copy(self._metadata(table), self._parquet(table))

    def compare(self) -> dict[str, Comparison]:
        """Compares the rows of every table with its copy."""
        s3.mirror("wh/", self._bucket)
        return {t: self._reader.compare(self._parquet(t), self._metadata(t)) for t in self._tables}

    def _metadata(self, name: str) -> str:
        """The newest metadata file. A committed one has the highest number; nothing else writes here."""
        files = (self._bucket / "wh" / "demo" / name / "metadata").glob("*.metadata.json")
        return str(max(files, key=lambda f: int(re.match(r"\d+", f.name)[0])))  # type: ignore[index]

    def _parquet(self, name: str) -> Path:
        return self._folder / "before" / f"{name}.parquet"
