"""Opens the store of a location: a local disk, S3 by its own requests, or another store by Arrow. FileIO and store that refuse every location outside the approved ones before a request is sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pyiceberg.io import PY_IO_IMPL, FileIO, InputFile, OutputFile, load_file_io

from iceberg_maint.catalog.local_store import LocalStore, local_path
from iceberg_maint.core.model.location import (
    LOCATION_PROVIDER,
    ApprovedLocations,
    location_owner,
    locations_of,
)
from iceberg_maint.core.model.table_state import TableState
from iceberg_maint.errors import RefusedError
from iceberg_maint.ports.storage import Store, StoredFile

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

APPROVED = "iceberg-maint.approved-locations"
_INNER = "iceberg-maint.approved-io-impl"
_LOCAL = ("file:", "/")


def guarded_properties(properties: Mapping[str, str], approved: ApprovedLocations) -> dict[str, str]:
    """Returns catalog properties with which PyIceberg opens every file through `ApprovedFileIO`."""
    inner = {_INNER: properties[PY_IO_IMPL]} if PY_IO_IMPL in properties else {}
    guard = {APPROVED: json.dumps(approved.prefixes), PY_IO_IMPL: f"{__name__}.{ApprovedFileIO.__name__}"}
    return {**properties, **inner, **guard}


def guard_of(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns those of the catalog properties that nothing else may replace; none if every location is approved."""
    if APPROVED not in properties:
        return {}
    return {key: properties[key] for key in (APPROVED, PY_IO_IMPL, _INNER) if key in properties}


def approved_of(properties: Mapping[str, str]) -> ApprovedLocations | None:
    """Returns the approved locations in catalog properties, None if every location is approved."""
    return ApprovedLocations(tuple(json.loads(properties[APPROVED]))) if APPROVED in properties else None


class ApprovedFileIO(FileIO):
    """PyIceberg's FileIO for the location's scheme. Raises RefusedError ICM-155 for a location that is not
    approved."""

    def __init__(self, properties: Any = None) -> None:
        super().__init__(properties or {})
        self.approved = approved_of(self.properties) or ApprovedLocations(())
        self._by_scheme: dict[str, FileIO] = {}

    def at(self, location: str) -> FileIO:
        """Returns the FileIO for an approved location."""
        check(self.approved, (location,), "a file")
        scheme = location.partition(":")[0] if ":" in location else "file"
        if scheme not in self._by_scheme:
            inner = {k: v for k, v in self.properties.items() if k not in (APPROVED, PY_IO_IMPL, _INNER)}
            if _INNER in self.properties:
                inner[PY_IO_IMPL] = self.properties[_INNER]
            self._by_scheme[scheme] = load_file_io(inner, location)
        return self._by_scheme[scheme]

    def new_input(self, location: str) -> InputFile:
        """Opens an approved location to read."""
        return self.at(location).new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """Opens an approved location to write."""
        return self.at(location).new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Deletes a file at an approved location."""
        text = location if isinstance(location, str) else location.location
        self.at(text).delete(text)


class ApprovedStore:
    """A store that checks each location before it passes a call on."""

    def __init__(self, store: Store, approved: ApprovedLocations) -> None:
        self._store, self._approved = store, approved
        self.at_once, self.bulk, self.resumes = store.at_once, store.bulk, store.resumes

    def _at(self, *locations: str) -> Store:
        check(self._approved, locations, "a file")
        return self._store

    def list(self, prefix: str) -> Iterator[StoredFile]:
        """Yields every file below an approved prefix."""
        return self._at(prefix).list(prefix)

    def list_after(self, prefix: str, after: str) -> Iterator[StoredFile]:
        """Yields the files below an approved prefix that are behind a path."""
        return self._at(prefix).list_after(prefix, after)

    def stat(self, path: str) -> StoredFile | None:
        """Returns the file, None if it does not exist."""
        return self._at(path).stat(path)

    def now_ms(self, folder: str) -> int:
        """Returns the store's time."""
        return self._at(folder).now_ms(folder)

    def read(self, path: str, most_bytes: int | None = None) -> bytes:
        """Returns the file, or its beginning."""
        return self._at(path).read(path, most_bytes)

    def read_lines(self, path: str) -> Iterator[bytes]:
        """Yields the lines of the file."""
        return self._at(path).read_lines(path)

    def create(self, path: str, lines: Iterable[bytes]) -> None:
        """Writes a new file."""
        self._at(path).create(path, lines)

    def move(self, source: str, target: str) -> None:
        """Moves a file between approved locations."""
        self._at(source, target).move(source, target)

    def delete(self, path: str) -> None:
        """Deletes a file if it exists."""
        self._at(path).delete(path)

    def delete_bulk(self, paths: Sequence[str]) -> frozenset[str]:
        """Deletes files by one request. Returns those that the store may still have."""
        return self._at(*paths).delete_bulk(paths)

    def tidy(self, folder: str) -> None:
        """Removes empty folders."""
        self._at(folder).tidy(folder)


def check_state(state: TableState, approved: ApprovedLocations) -> None:
    """Raises RefusedError ICM-155 if the metadata of a pinned table names a location that is not approved,
    or a class that chooses locations."""
    check(approved, locations_of(state), str(state.table))
    _check_provider(str(state.table), state.properties)


def check_writes(
    table: str, location: str, properties: Mapping[str, str], approved: ApprovedLocations
) -> None:
    """Raises RefusedError ICM-155 if a table with this location and these properties has files written elsewhere."""
    check(approved, location_owner(table, "", location, properties, f"{location}/").locations, table)
    _check_provider(table, properties)


def _check_provider(table: str, properties: Mapping[str, str]) -> None:
    if provider := properties.get(LOCATION_PROVIDER):
        raise RefusedError(
            "ICM-155",
            f"{table}: table property {LOCATION_PROVIDER} is '{provider}', a class that may write to any "
            "location. The catalog has approved_locations.",
            "remove the property, or approved_locations of the catalog.",
        )


def check(approved: ApprovedLocations, locations: Iterable[str], subject: str) -> None:
    """Raises RefusedError ICM-155 for the first location that is not approved, or that a symbolic link leads outside."""
    texts = tuple(locations)
    if (outside := approved.first_outside(texts)) is None:
        outside = _linked_outside(approved, texts)
    if outside is not None:
        raise RefusedError(
            "ICM-155",
            f"{subject} is at {outside!r}. That is outside the catalog's approved_locations.",
            "find out who named this location; add its prefix to approved_locations of the catalog only if it is "
            "right.",
        )


def _linked_outside(approved: ApprovedLocations, locations: Iterable[str]) -> str | None:
    """Returns where symbolic links lead the first local location that they lead outside, None if there is none."""
    real_folder = lru_cache(maxsize=None)(realpath)
    real_prefixes: ApprovedLocations | None = None
    for path in (local_path(location) for location in locations if location.startswith(_LOCAL)):
        folder, _, name = path.rpartition("/")
        target = realpath(path) if Path(path).is_symlink() else f"{real_folder(folder)}/{name}"
        if real_prefixes is None:
            local = (local_path(prefix) for prefix in approved.prefixes if prefix.startswith(_LOCAL))
            real_prefixes = ApprovedLocations(tuple(map(realpath, local)))
        if not real_prefixes.allows(target):
            return target
    return None


def open_store(io: FileIO, location: str) -> Store:
    """Returns the store that holds a table's location. The store of an `ApprovedFileIO` has its limits."""
    approved = approved_of(io.properties)
    if approved is None:
        return _store(lambda: io, location)
    # Perhaps behind one that takes new credentials: each call gets the newest.
    guarded = cast("ApprovedFileIO", io)
    return ApprovedStore(_store(lambda: guarded.at(location), location), approved)


def _store(newest: Callable[[], FileIO], location: str) -> Store:
    if location.startswith(("file:", "/")):
        return LocalStore(location)
    # These imports cost 0.5 s of CPU. A lake on local disks does not need them.
    from iceberg_maint.catalog.arrow_store import ArrowStore, file_system
    from iceberg_maint.catalog.s3_store import s3_store

    def resolve(path: str) -> tuple[FileSystem, str]:
        return file_system(newest(), path)

    return s3_store(lambda: newest().properties, location, resolve) or ArrowStore(resolve)
