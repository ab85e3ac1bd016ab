"""Opens the store of a location: a local disk, S3 by its own requests, or another store by Arrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from pyarrow.fs import FileSystem
from pyiceberg.io import FileIO

from iceberg_maint.catalog.approved_io import ApprovedStore, approved_of
from iceberg_maint.catalog.file_store import ArrowStore, LocalStore, file_system
from iceberg_maint.catalog.s3_store import s3_store
from iceberg_maint.ports.storage import Store

if TYPE_CHECKING:
    from iceberg_maint.catalog.approved_io import ApprovedFileIO


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

    def resolve(path: str) -> tuple[FileSystem, str]:
        return file_system(newest(), path)

    return s3_store(lambda: newest().properties, location, resolve) or ArrowStore(resolve)
