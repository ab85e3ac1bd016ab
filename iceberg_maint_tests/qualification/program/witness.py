"""Second readers: DuckDB and PyIceberg, which share no code with who writes and maintains the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from multiprocessing import get_context
from typing import Any

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import StaticTable

from iceberg_maint.demo.duckdb_reader import DuckDBReader, scan
from iceberg_maint_tests.qualification.program.kinds import of_python

PyRow = Mapping[str, Any]


class Crashed(Exception):
    """DuckDB's extension brought its process down: it has not read anything, rightly or wrongly."""


class Witness:
    """Rows of a table's metadata file, at its head or an older snapshot, as Python values by name."""

    def __init__(self) -> None:
        self._files: dict[str, frozenset[str]] = {}

    def read(self, reader: str, location: str, snapshot_id: int | None = None) -> list[PyRow]:
        """By `duckdb`, or of a snapshot without equality deletes, which it does not apply, by `pyiceberg`.
        Raises Crashed."""
        if reader == "duckdb":
            from duckdb import FatalException, InternalException

            try:
                return _process().submit(_by_duckdb, location, snapshot_id).result()
            except (BrokenProcessPool, FatalException, InternalException) as why:
                _process().shutdown(wait=False)
                _process.cache_clear()
                raise Crashed from why
        return StaticTable.from_metadata(location).scan(snapshot_id=snapshot_id).to_arrow().to_pylist()

    def reached(self, location: str) -> set[str]:
        """Every file that the snapshots of a metadata file need, and the metadata files it names."""
        table = StaticTable.from_metadata(location)
        found = {location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
        for snapshot in table.metadata.snapshots:
            found.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(table.io):
                found.add(manifest.manifest_path)
                found |= self._live_files(manifest, table.io)
        return found

    def _live_files(self, manifest: ManifestFile, io: Any) -> frozenset[str]:
        path = manifest.manifest_path
        if path not in self._files:
            entries = manifest.fetch_manifest_entry(io, discard_deleted=True)
            self._files[path] = frozenset(e.data_file.file_path for e in entries)
        return self._files[path]


@cache
def _process() -> ProcessPoolExecutor:
    """A process for DuckDB, which its extension crashes on some tables."""
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"))


@cache
def _duckdb() -> Any:
    return DuckDBReader()._db


def _by_duckdb(location: str, snapshot_id: int | None) -> list[PyRow]:
    return _duckdb().execute(f"SELECT * FROM {scan(location, snapshot_id)}").to_arrow_table().to_pylist()


def by_field(row: PyRow, columns: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[int, Any]]:
    """Values by field id of a row by name; `columns` are a schema's fields in Iceberg's JSON. Those of a
    struct come one by one, and whether it is there."""
    for name, column in columns.items():
        kind, value = column["type"], row[name]
        if isinstance(kind, Mapping) and kind["type"] == "struct":
            if value is not None:
                yield int(column["id"]), True
                yield from by_field(value, {f["name"]: f for f in kind["fields"]})
        else:
            yield int(column["id"]), of_python(kind, value)
