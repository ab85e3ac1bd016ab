"""Engines elsewhere: how each is reached, and which of them an operation may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from iceberg_maint.core.model.ids import Operation, TableId
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.core.policy.housekeeping import OWN_ENGINE


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How to reach an engine: its address, and who asks. `catalogs` are its names of our catalogs, where they differ. A
    statement that lasts longer than `timeout_seconds` is cancelled."""

    uri: str
    user: str
    password: str | None = field(repr=False)
    catalogs: Mapping[str, str]
    timeout_seconds: float

    def catalog_of(self, table: TableId) -> str:
        """Returns the engine's name of the table's catalog."""
        return self.catalogs.get(table.catalog, table.catalog)


def engines_of(operation: Operation, policy: Policy) -> tuple[str, ...]:
    """Returns the engines of an operation by name, in the order in which they are asked. Operations on deletes have none
    but this program."""
    match operation:
        case Operation.REWRITE_DATA_FILES:
            return policy.rewrite_data_files.engines
        case Operation.REWRITE_MANIFESTS:
            return policy.rewrite_manifests.engines
        case Operation.EXPIRE_SNAPSHOTS:
            return policy.expire_snapshots.engines
        case Operation.REMOVE_ORPHAN_FILES:
            return policy.remove_orphan_files.engines
        case _:
            return (OWN_ENGINE,)
