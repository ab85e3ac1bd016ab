"""Reads the stored facts about every table of the fleet and judges them. Reads no catalog, but for one message."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from threading import Event, Thread

from iceberg_maint.core.alerts.condition import AlertKind, Condition, TableFacts, conditions
from iceberg_maint.core.alerts.incident import Incident, TableConditions
from iceberg_maint.core.decisions.retention import described_holders
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation, TableId
from iceberg_maint.ports.stored import KnownTable
from iceberg_maint.runner.assess import assess
from iceberg_maint.runner.runtime import Runtime
from iceberg_maint.runner.stored_decisions import decisions_of

_log = logging.getLogger("iceberg_maint")
_CHUNK = 200
"""Tables whose health is in memory at the same time."""
_MOST_PASSES = 10
HOLDER_SECONDS = 20.0
"""One pass reads catalogs for this long. A catalog that hangs, or the first pass over a large lake, would else outlast the
lease of the pass, which would then send nothing."""


def judge_tables(runtime: Runtime, known: Sequence[KnownTable], now_ms: int) -> Iterator[TableConditions]:
    """Yields the conditions of each table. A table that cannot be judged is logged and left out."""
    for start in range(0, len(known), _CHUNK):
        chunk = known[start : start + _CHUNK]
        names = {k.table_uuid: str(k.table) for k in chunk}
        healths = runtime.ledger.healths([k.table for k in chunk])
        histories = runtime.ledger.histories(names, tuple(Operation))
        passes = runtime.ledger.last_outcomes(names, Operation.REMOVE_ORPHAN_FILES, _MOST_PASSES)
        for k in chunk:
            measured = healths.get(k.table)
            if measured is None:
                continue
            try:
                policy = runtime.policy_for(k.table, measured.maintenance_properties)
                own = {o: histories[k.table_uuid, o] for o in Operation}
                data = {o: own[o] for o in DATA_OPERATIONS}
                decisions = decisions_of(measured, policy, data, now_ms, runtime.row_types)
            except Exception as why:  # noqa: BLE001 - one table must not silence the alerts of the others
                _log.warning("alerts: %s cannot be judged: %s", k.table, runtime.redacted_error(why))
                continue
            done = [h.last_done_ms for h in data.values() if h.last_done_ms is not None]
            facts = TableFacts(
                measured,
                k.observed_ms,
                policy,
                decisions,
                tuple(own.values()),
                max(done, default=None),
                passes.get(k.table_uuid, ()),
            )
            yield TableConditions(
                str(k.table),
                k.table_uuid,
                policy.alerts.owners,
                conditions(facts, now_ms),
                is_muted=facts.is_paused,
            )


def named_holders(
    tables: Sequence[TableConditions],
    incidents: Sequence[Incident],
    runtime: Runtime,
    seconds: float = HOLDER_SECONDS,
) -> tuple[TableConditions, ...]:
    """Returns the conditions with the holders of snapshots in the summary of an expiry that is blocked. The catalog is
    read only for an incident that is new, and for `seconds` in one pass; the summary of a known one stays."""
    known = {i.key: i.summary for i in incidents if i.cleared_ms is None}
    unnamed = [
        t.table
        for t in tables
        if not t.is_muted
        and (AlertKind.EXPIRY_BLOCKED, t.table_uuid) not in known
        and any(c.kind is AlertKind.EXPIRY_BLOCKED for c in t.conditions)
    ]
    holders = _holders_within(unnamed, runtime, seconds)

    def named(table: TableConditions, condition: Condition) -> Condition:
        if condition.kind is not AlertKind.EXPIRY_BLOCKED:
            return condition
        stored = known.get((condition.kind, table.table_uuid))
        names = holders.get(table.table, "Its holders were not read: the catalog took too long.")
        return replace(condition, summary=stored or f"{condition.summary} {names}")

    return tuple(replace(t, conditions=tuple(named(t, c) for c in t.conditions)) for t in tables)


def _holders_within(tables: Sequence[str], runtime: Runtime, seconds: float) -> Mapping[str, str]:
    """The holders of as many tables as the catalog answers for in this time. A thread reads, because a read of a catalog
    may hang. It ends after the read that it is in."""
    holders: dict[str, str] = {}
    if not tables:
        return holders
    is_late = Event()

    def read() -> None:
        for table in tables:
            text = _holders(table, runtime)
            if is_late.is_set():
                return
            holders[table] = text

    thread = Thread(target=read, name="alert holders", daemon=True)
    thread.start()
    thread.join(seconds)
    is_late.set()
    return dict(holders)


def _holders(table: str, runtime: Runtime) -> str:
    try:
        retention = assess(TableId.parse(table), runtime, (Operation.EXPIRE_SNAPSHOTS,)).retention
    except Exception as why:  # noqa: BLE001 - the alert is sent without the names
        return f"The holders could not be read: {runtime.redacted_error(why)}"
    holders = described_holders(retention)
    return f"Held by {'; '.join(holders)}." if holders else "No holder keeps it: the expiry has not run."
