"""The error of a metadata file that cannot be read: of the file itself, or of the way to its store."""

from __future__ import annotations

import re

from iceberg_maint.core.outcomes.failures import file_system_fix, is_environment, python_causes
from iceberg_maint.errors import UnreadableTableError

_DENIED = (
    "PermissionError",
    "AWS Error ACCESS_DENIED",
    "AWS Error INVALID_ACCESS_KEY_ID",
    "AWS Error SIGNATURE",
)

_KEY_AND_BUCKET = re.compile(r"^When [^']*'[^']*' in bucket '[^']*': ")


def store_reason(error: Exception) -> str:
    """Returns why a store failed: the first line of its error, without the key and the bucket that Arrow puts first. The
    caller names the location."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return _KEY_AND_BUCKET.sub("", line).removesuffix(".").removesuffix(": No response body")


def unreadable(
    message: str, error: Exception, fix: str = "repair or restore the file."
) -> UnreadableTableError:
    """Returns the error with this message. The code is ICM-125 if the store denies access, ICM-133 if it cannot be reached
    or refuses the request, ICM-176 if this process has too many open files, else ICM-101 with this fix."""
    causes = python_causes(error)
    if any(sign in f"{name} {text}" for name, text in causes for sign in _DENIED):
        return UnreadableTableError(
            "ICM-125",
            message,
            "correct the credentials in the properties of the catalog, or grant permission to read below this location.",
        )
    if any(name == "ModuleNotFoundError" for name, _ in causes):
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
