"""Decisions of the Dagster layer from stored health, without reading the table."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from iceberg_maint.core.decisions.history import TableHistory
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import (
    UNPARTITIONED_KEY,
    Operation,
    PartitionKey,
    TableId,
)
from iceberg_maint.core.model.reasons import Decision
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.ports.stored import Report
from iceberg_maint.runner.pointers import read_known_pointers
from iceberg_maint.runner.runtime import Runtime
from iceberg_maint.runner.stored_decisions import decide_stored

_log = logging.getLogger(__name__)


def read_pointers(runtime: Runtime, tables: Iterable[TableId]) -> dict[TableId, str]:
    """Metadata pointers of the tables whose catalog answers in time."""
    pointers, errors = read_known_pointers(tuple(tables), runtime)
    for name, why in errors.items():
        _log.warning("catalog %s does not give all pointers: %s", name, runtime.masked(str(why)))
    return pointers


def stored_policy(runtime: Runtime, measured: Measured) -> Policy:
    """The effective policy with the properties of the stored health."""
    return runtime.policy_for(measured.table, measured.maintenance_properties)


def stored_decision(runtime: Runtime, measured: Measured) -> tuple[TableHistory, Decision]:
    """The history of the table's data in the ledger, and the decision from stored health; reads no catalog."""
    now_ms = runtime.clock.now_ms()
    return decide_stored(
        measured, stored_policy(runtime, measured), runtime.ledger, now_ms, runtime.row_types
    )


def unknown_partitions(runtime: Runtime, table: TableId, keys: Iterable[PartitionKey]) -> set[PartitionKey]:
    """Returns the keys that no partition of the table has or had, by its stored health. Returns none without
    stored health."""
    measured = runtime.ledger.health(table)
    if measured is None:
        return set()
    known = {UNPARTITIONED_KEY, *measured.partitions, *runtime.ledger.missing_partitions(table)}
    return set(keys) - known


def last_expiry(runtime: Runtime, table_uuid: str) -> Report | None:
    """The report of the table's last expiry, from any run."""
    return runtime.ledger.last_report(table_uuid, Operation.EXPIRE_SNAPSHOTS)


def last_orphan_pass(runtime: Runtime, table_uuid: str) -> Report | None:
    """The report of the table's last orphan pass, from any run."""
    return runtime.ledger.last_report(table_uuid, Operation.REMOVE_ORPHAN_FILES)
