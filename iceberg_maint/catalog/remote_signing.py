"""Tables whose catalog signs each request to the store, so that clients need no credentials.

Iceberg's Java client sends every request to the catalog first (REST specification: `s3.remote-signing-enabled`,
`/v1/aws/s3/sign`). Arrow's S3 client, which reads metadata and lists, moves and deletes files here, cannot. Without
credentials of its own it would be denied everywhere, with an answer that names another cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.errors import UnreadableTableError

_SIGNS = "s3.remote-signing-enabled"
_KEYS = ("s3.access-key-id", "client.access-key-id", "s3.role-arn", "client.role-arn")


def check_signing(table: TableId, properties: Mapping[str, Any]) -> None:
    """Raises UnreadableTableError ICM-154 if the FileIO with these properties has remote signing in place of credentials."""
    if str(properties.get(_SIGNS, "")).lower() != "true" or any(properties.get(key) for key in _KEYS):
        return
    raise UnreadableTableError(
        "ICM-154",
        f"{table}: the catalog signs requests to the store ({_SIGNS}) and gives no credentials. Files are read and "
        "listed by a client that cannot ask it for signatures.",
        "let the catalog vend credentials, or set s3.access-key-id and s3.secret-access-key (or s3.role-arn) in the "
        "properties of the catalog.",
    )
