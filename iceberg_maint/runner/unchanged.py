"""Unchanged tables: their stored health stands for a measurement of the table as it is now.

A table is unchanged if the catalog's pointer, the policy sections that a measurement reads and the version of the
measurement are those of its stored health. Nothing of it is read, and no commit is decided from stored health:
a run pins and measures every table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.health.basis import basis_of
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation, TableId
from iceberg_maint.ports.stored import StoredMeasurement
from iceberg_maint.runner.runtime import Runtime


@dataclass(frozen=True, slots=True)
class UnchangedTable:
    """The stored health of an unchanged table, with the histories that decisions on its data need, if they were
    asked for."""

    measured: Measured
    histories: Mapping[Operation, TableHistory]


def is_unchanged(stored: StoredMeasurement, pointer: str | None, runtime: Runtime, installation: str) -> bool:
    """Whether the stored health is that of the table at this pointer. A table whose policy is wrong is not unchanged: the
    look at it reports the error."""
    if not stored.basis or stored.pointer != pointer:
        return False
    try:
        policy = runtime.policy_for(stored.table, stored.maintenance_properties)
    except Exception:  # noqa: BLE001 - the look at the table reports it
        return False
    return stored.basis == basis_of(policy, installation)


def load_unchanged(
    stored: Collection[StoredMeasurement], runtime: Runtime, *, observe: bool, histories: bool
) -> Iterator[tuple[TableId, UnchangedTable | None]]:
    """Yields every table with its stored health; with None if another process has stored newer health since. With
    `observe` the look counts as an observation of these tables."""
    if observe:
        runtime.ledger.confirm_health({s.table_uuid: s.pointer for s in stored})
    healths = runtime.ledger.healths([s.table for s in stored])
    stored_histories = (
        runtime.ledger.histories({s.table_uuid: str(s.table) for s in stored}) if histories else {}
    )
    for s in stored:
        measured = healths.get(s.table)
        if measured is None or measured.metadata_location != s.pointer:
            yield s.table, None
            continue
        of_table = {o: stored_histories[s.table_uuid, o] for o in DATA_OPERATIONS} if histories else {}
        yield s.table, UnchangedTable(measured, of_table)
