"""Read restrictions: the row filter and the column masks that a REST catalog puts on a table for one principal.

REST specification: LoadTableResult, `read-restrictions` (apache/iceberg#13879). A client that loads the table must apply
them to every row that it reads. A rewrite that applied them would lose rows and values. A rewrite that did not apply them
would read what the principal may not read. Neither PyIceberg nor Iceberg's Java client of this version knows the field.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from iceberg_maint.errors import GovernedTableError

if TYPE_CHECKING:
    from requests import Response

_FIELD = "read-restrictions"
_KINDS = {"required-row-filter": "a row filter", "required-column-projections": "column masks"}


def refuse_restricted(response: Response, **_settings: Any) -> None:
    """Raises GovernedTableError ICM-169 if a catalog's answer has read restrictions."""
    if _FIELD.encode() not in response.content:
        return
    try:
        answer = json.loads(response.content)
    except (ValueError, RecursionError):
        return
    kinds = restrictions(answer.get(_FIELD)) if isinstance(answer, dict) else ()
    if kinds:
        raise GovernedTableError(
            f"the catalog restricts what this principal may read: {_FIELD} has {' and '.join(kinds)}. Maintenance "
            "must read and rewrite whole files.",
            (str(answer.get("metadata-location")), json.dumps(answer.get("metadata")).encode()),
        )


def restrictions(document: object) -> tuple[str, ...]:
    """Returns the kinds of restrictions in the value of `read-restrictions`. A kind that is not known restricts too.
    An absent field, an empty object and empty lists restrict nothing."""
    if document is None:
        return ()
    if not isinstance(document, dict):
        return ("an unknown restriction",)
    return tuple(
        _KINDS.get(key, "an unknown restriction")
        for key, value in document.items()
        if value not in (None, [])
    )
