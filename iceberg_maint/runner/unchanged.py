"""Unchanged tables: their stored health stands for a measurement of the table as it is now.

A table is unchanged if the catalog's pointer, the policy sections that a measurement reads and the version of the
measurement are those of its stored health. Nothing of it is read, and no commit is decided from stored health:
a run pins and measures every table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.health.basis import basis_of
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation, TableId
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.ports.stored import StoredMeasurement
from iceberg_maint.runner.runtime import Runtime

_CHUNK = 500
"""Tables whose stored health is in memory at a time."""


@dataclass(frozen=True, slots=True)
class UnchangedTable:
    """The stored health of an unchanged table, with the histories that decisions on its data need, if they were
    asked for."""

    measured: Measured
    histories: Mapping[Operation, TableHistory]


def unchanged_tables(tables: Collection[TableId], runtime: Runtime) -> tuple[StoredMeasurement, ...]:
    """Returns the measurements of the unchanged tables. A table whose catalog does not answer, or whose policy is
    wrong, is not unchanged: the look at it reports the error."""
    stored = runtime.ledger.measurements(tables)
    pointers = _pointers([s.table for s in stored], runtime)
    installation = runtime.ledger.installation()
    return tuple(
        s
        for s in stored
        if s.basis and s.pointer == pointers.get(s.table) and s.basis == _basis(s, runtime, installation)
    )


def look(
    tables: Sequence[TableId], runtime: Runtime, *, observe: bool, histories: bool = True
) -> Iterator[tuple[TableId, UnchangedTable | None]]:
    """Yields every table in order, with its stored health if it is unchanged. With `observe` the look counts as an
    observation of these tables. Without `histories` nothing is decided."""
    unchanged = {s.table: s for s in unchanged_tables(tables, runtime)}
    for start in range(0, len(tables), _CHUNK):
        chunk = tables[start : start + _CHUNK]
        stored = {t: unchanged[t] for t in chunk if t in unchanged}
        if observe and stored:
            runtime.ledger.confirm_health({s.table_uuid: s.pointer for s in stored.values()})
        healths = runtime.ledger.healths(stored) if stored else {}
        named = {s.table_uuid: str(s.table) for s in stored.values()} if histories else {}
        stored_histories = runtime.ledger.histories(named) if named else {}
        for table in chunk:
            measured = healths.get(table)
            # Another process may have stored newer health since.
            if measured is None or measured.metadata_location != stored[table].pointer:
                yield table, None
                continue
            uuid = stored[table].table_uuid
            of_table = {o: stored_histories[uuid, o] for o in DATA_OPERATIONS} if histories else {}
            yield table, UnchangedTable(measured, of_table)


def _basis(stored: StoredMeasurement, runtime: Runtime, installation: str) -> str:
    try:
        return basis_of(runtime.policy_for(stored.table, stored.maintenance_properties), installation)
    except IcebergMaintError:
        return ""


def _pointers(tables: Collection[TableId], runtime: Runtime) -> dict[TableId, str]:
    pointers: dict[TableId, str] = {}
    for name in {t.catalog for t in tables} & set(runtime.catalogs):
        try:
            pointers.update(runtime.catalogs[name].pointers([t for t in tables if t.catalog == name]))
        except IcebergMaintError:
            continue
    return pointers
