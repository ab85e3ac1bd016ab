"""Prunes the ledger of dropped tables, which have no run that does it."""

from __future__ import annotations

import logging

from iceberg_maint.core.model.ids import TableId
from iceberg_maint.core.removal.clock_agreement import disagreement
from iceberg_maint.runner.clocks import read_clocks
from iceberg_maint.runner.runtime import Runtime

_log = logging.getLogger(__name__)
_DAY_SECONDS = 86_400


def prune_dropped_tables(runtime: Runtime) -> None:
    """Deletes what the ledger has of each dropped table whose last work ended longer ago than the `ledger_keep_days` of
    its name, once the audit log has its records. Does nothing while clocks disagree."""
    old: list[tuple[TableId, str, int]] = []
    for dropped in runtime.ledger.dropped_tables():
        if not all(dropped.name.split(".")) or dropped.name.count(".") < 2:
            continue
        table = TableId.parse(dropped.name)
        keep_days = runtime.policy_for(table, {}).ledger_keep_days
        if keep_days is not None and dropped.idle_seconds > keep_days * _DAY_SECONDS:
            old.append((table, dropped.table_uuid, keep_days))
    if not old:
        return
    doubt = disagreement(read_clocks(runtime.clock, runtime.ledger))
    if doubt is not None:
        _log.warning("The ledger keeps the work of dropped tables: %s.", doubt)
        return
    for table, uuid, keep_days in old:
        if runtime.audit.settle(str(table), uuid):
            runtime.ledger.prune_dropped(uuid, keep_days)
