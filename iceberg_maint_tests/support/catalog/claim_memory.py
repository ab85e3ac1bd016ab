"""Claims of tables in this process alone."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.ports.stored import StoredLocationOwner


class ClaimMemory:
    """The part of the ledger that keeps claims."""

    def __init__(self) -> None:
        self._claims: dict[str, dict[TableId, StoredLocationOwner]] = {}

    def now_ms(self) -> int:
        """The time of this machine."""
        return time.time_ns() // 1_000_000

    def location_owners(self, catalog: str) -> Mapping[TableId, StoredLocationOwner]:
        """The last claims of the catalog's tables."""
        return dict(self._claims.get(catalog, {}))

    def put_location_owners(
        self, catalog: str, stored: Mapping[TableId, StoredLocationOwner], dropped: Collection[TableId] = ()
    ) -> None:
        """Keeps claims and forgets those of dropped tables."""
        kept = self._claims.setdefault(catalog, {})
        for table in dropped:
            kept.pop(table, None)
        kept.update(stored)
