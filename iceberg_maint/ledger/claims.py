"""The locations that tables claim, by the metadata file that an orphan pass has read them from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from hashlib import blake2b

from sqlalchemy import Connection, delete, insert, select

from iceberg_maint.core.model.codec import dumps, loads
from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.model.location import Claim
from iceberg_maint.ledger.chunks import chunks
from iceberg_maint.ledger.schema import claim
from iceberg_maint.ports.stored import StoredClaim

_FORM = "1"
"""Changes whenever the locations that a metadata file claims are derived in another way."""


def of_catalog(conn: Connection, catalog: str) -> Mapping[TableId, StoredClaim]:
    """Returns the claims of the catalog's tables in the present form."""
    rows = conn.execute(select(claim).where(claim.c.catalog == catalog, claim.c.form == _FORM))
    # A stored name with an empty part names no table.
    return {
        _table(row.table_name): StoredClaim(row.pointer, _claim(row.body), row.current_ms)
        for row in rows
        if all(row.table_name.split("."))
    }


def put(
    conn: Connection, catalog: str, stored: Mapping[TableId, StoredClaim], dropped: Collection[TableId]
) -> None:
    """Stores claims in place of earlier ones, and deletes those of dropped tables. Claims of tables whose name is not
    unique are not stored, so they are read again."""
    stored = {table: entry for table, entry in stored.items() if table.is_unique}
    for keys in chunks([_key(table) for table in (*stored, *dropped)]):
        conn.execute(delete(claim).where(claim.c.table_key.in_(keys)))
    if stored:
        conn.execute(
            insert(claim),
            [
                {
                    "table_key": _key(table),
                    "catalog": catalog,
                    "table_name": str(table),
                    "pointer": entry.pointer,
                    "form": _FORM,
                    "body": dumps(entry.claim),
                    "current_ms": entry.current_ms,
                }
                for table, entry in stored.items()
            ],
        )


@lru_cache(maxsize=10_000)
def _table(name: str) -> TableId:
    return TableId.parse(name)


@lru_cache(maxsize=10_000)
def _claim(body: str) -> Claim:
    """The claim of a stored text. Each orphan pass reads those of all tables."""
    return loads(Claim, body)


def _key(table: TableId) -> str:
    # A name has no limit of length, a key has.
    return blake2b(str(table).encode(), digest_size=16).hexdigest()
