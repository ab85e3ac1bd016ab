"""Reads one metadata file: whole, or as columns of Avro fields. The error of a file that cannot be read is that of the file
itself, or of the way to its store."""

from __future__ import annotations

import re
import sys
from urllib.parse import urlsplit

from pyiceberg.io import FileIO

from iceberg_maint.catalog.manifests.avro import Column, read_columns
from iceberg_maint.catalog.manifests.avro_values import AvroError
from iceberg_maint.core.outcomes.failures import file_system_fix, is_environment, is_of_process, python_causes
from iceberg_maint.errors import UnreadableTableError

_DENIED = (
    "PermissionError",
    "AWS Error ACCESS_DENIED",
    "AWS Error INVALID_ACCESS_KEY_ID",
    "AWS Error SIGNATURE",
)

_NOT_INSTALLED = ("ModuleNotFoundError", "ImportError")
_KEY_AND_BUCKET = re.compile(r"^When [^']*'[^']*' in bucket '[^']*': ")


def store_reason(error: Exception) -> str:
    """Returns why a store failed: the first line of its error, without the key and the bucket that Arrow puts first. The
    caller names the location."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return _KEY_AND_BUCKET.sub("", line).removesuffix(".").removesuffix(": No response body")


def unreadable(
    message: str, error: Exception, fix: str = "repair or restore the file."
) -> UnreadableTableError:
    """Returns the error with this message; raises an error of this process as it is. The code is ICM-125 if the store denies access, ICM-133 if it cannot be reached
    or refuses the request, ICM-176 if this process has too many open files, else ICM-101 with this fix."""
    if is_of_process(error):
        raise error
    causes = python_causes(error)
    if any(sign in f"{name} {text}" for name, text in causes for sign in _DENIED):
        return UnreadableTableError(
            "ICM-125",
            message,
            "correct the credentials in the properties of the catalog, or grant permission to read below this location.",
        )
    if any(name in _NOT_INSTALLED for name, _ in causes):
        return UnreadableTableError("ICM-133", message, "install the package that the message names.")
    if fixes := [f for _, text in causes if (f := file_system_fix(text))]:
        return UnreadableTableError("ICM-176", message, f"{fixes[0]}.")
    if is_environment(causes):
        return UnreadableTableError(
            "ICM-133",
            message,
            "check the store's address (s3.endpoint), its region (s3.region, client.region) and whether the token of "
            "the credentials has expired.",
        )
    return UnreadableTableError("ICM-101", message, fix)


def read_bytes(io: FileIO, location: str, what: str) -> bytes:
    """Returns the whole file. Raises UnreadableTableError ICM-101, or ICM-125 or ICM-133 for a store that refuses, with a
    message that begins with `what`."""
    try:
        with io.new_input(location).open() as stream:
            # Only a process that has imported Arrow has streams of it. The import takes a tenth of a local `why`. Another
            # thread may just import it: the module then has no names yet.
            arrow_stream = getattr(sys.modules.get("pyarrow"), "NativeFile", None)
            if arrow_stream is not None and isinstance(stream, arrow_stream):
                from iceberg_maint.machine.files import read_whole

                return bytes(read_whole(stream, location))
            return stream.read()
    except FileNotFoundError as error:
        # Stores answer in the same way if the whole bucket is gone.
        bucket = urlsplit(location).netloc
        fix = f"restore the file, or the bucket '{bucket}' if it is gone." if bucket else "restore the file."
        raise UnreadableTableError(
            "ICM-101", f"{what} {location} is missing. Nothing was changed.", fix
        ) from error
    except Exception as error:  # each file system raises its own errors
        raise unreadable(_message(what, location, error), error) from error


def read_fields(
    io: FileIO, location: str, field_ids: tuple[int, ...], what: str, bounds_of: tuple[int, ...] | None = ()
) -> list[Column]:
    """Returns one column for each of these fields, by id. Bounds among them are those of the columns
    `bounds_of`; None: (column id, bound) for all columns. Raises UnreadableTableError ICM-101."""
    data = read_bytes(io, location, what)
    try:
        return read_columns(data, field_ids, bounds_of)
    except AvroError as error:
        raise unreadable(_message(what, location, error), error) from error


def _message(what: str, location: str, error: Exception) -> str:
    return f"{what} {location} cannot be read: {store_reason(error)}."
