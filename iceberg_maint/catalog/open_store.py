"""Opens the store of a location: a local disk, S3 by its own requests, or another store by Arrow."""

from __future__ import annotations

from pyarrow.fs import FileSystem
from pyiceberg.io import FileIO

from iceberg_maint.catalog.approved_io import ApprovedFileIO, ApprovedStore
from iceberg_maint.catalog.file_store import ArrowStore, LocalStore, file_system
from iceberg_maint.catalog.s3_store import s3_store
from iceberg_maint.ports.storage import Store


def open_store(io: FileIO, location: str) -> Store:
    """Returns the store that holds a table's location. The store of an `ApprovedFileIO` has its limits."""
    if isinstance(io, ApprovedFileIO):
        return ApprovedStore(open_store(io.at(location), location), io.approved)
    if location.startswith(("file:", "/")):
        return LocalStore()

    def resolve(path: str) -> tuple[FileSystem, str]:
        return file_system(io, path)

    return s3_store(lambda: io.properties, location, resolve) or ArrowStore(resolve)
