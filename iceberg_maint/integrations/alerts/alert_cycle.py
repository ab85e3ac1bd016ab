"""Reads the stored facts about every table of the fleet and judges them. Reads no catalog, but for one message."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event, Thread
from uuid import uuid4

from iceberg_maint.core.alerts import (
    AlertKind,
    Condition,
    Incident,
    Messages,
    TableConditions,
    TableFacts,
    conditions,
    follow,
    messages_for,
    taken,
    unfinished,
)
from iceberg_maint.core.decisions.snapshot_retention import described_retainers
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation, TableId
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.integrations.alerts.receivers import Receiver
from iceberg_maint.loop.assess import assess
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.fleet.stored_decisions import decisions_of
from iceberg_maint.ports.stored import KnownTable

_log = logging.getLogger("iceberg_maint")
_CHUNK = 200
"""Tables whose health is in memory at the same time."""
_MOST_SCANS = 10
HOLDER_SECONDS = 20.0
"""One cycle reads catalogs for this long. A catalog that hangs, or the first cycle over a large lake, would else outlast the
lease of the cycle, which would then send nothing."""


def judge_tables(context: Context, known: Sequence[KnownTable], now_ms: int) -> Iterator[TableConditions]:
    """Yields the conditions of each table. A table that cannot be judged is logged and left out."""
    for start in range(0, len(known), _CHUNK):
        chunk = known[start : start + _CHUNK]
        names = {k.table_uuid: str(k.table) for k in chunk}
        healths = context.ledger.health.get_all([k.table for k in chunk])
        histories = context.ledger.health.histories(names, tuple(Operation))
        scans = context.ledger.records.last_outcomes(names, Operation.REMOVE_ORPHAN_FILES, _MOST_SCANS)
        for k in chunk:
            measured = healths.get(k.table)
            if measured is None:
                continue
            try:
                policy = context.policies.of_table(k.table, measured.maintenance_properties)
                own = {o: histories[k.table_uuid, o] for o in Operation}
                data = {o: own[o] for o in DATA_OPERATIONS}
                decisions = decisions_of(measured, policy, data, now_ms, context.engine.row_types)
            except Exception as why:  # noqa: BLE001 - one table must not silence the alerts of the others
                _log.warning("alerts: %s cannot be judged: %s", k.table, context.process.redacted_error(why))
                continue
            done = [h.last_done_ms for h in data.values() if h.last_done_ms is not None]
            facts = TableFacts(
                measured,
                k.observed_ms,
                policy,
                decisions,
                tuple(own.values()),
                max(done, default=None),
                scans.get(k.table_uuid, ()),
            )
            yield TableConditions(
                str(k.table),
                k.table_uuid,
                policy.alerts.owners,
                conditions(facts, now_ms),
                is_muted=facts.is_paused,
            )


def named_retainers(
    tables: Sequence[TableConditions],
    incidents: Sequence[Incident],
    context: Context,
    seconds: float = HOLDER_SECONDS,
) -> tuple[TableConditions, ...]:
    """Returns the conditions with the retainers of snapshots in the summary of an expiry that is blocked. The catalog is
    read only for an incident that is new, and for `seconds` in one cycle; the summary of a known one stays."""
    known = {i.key: i.summary for i in incidents if i.cleared_ms is None}
    unnamed = [
        t.table
        for t in tables
        if not t.is_muted
        and (AlertKind.EXPIRY_BLOCKED, t.table_uuid) not in known
        and any(c.kind is AlertKind.EXPIRY_BLOCKED for c in t.conditions)
    ]
    retainers = _retainers_within(unnamed, context, seconds)

    def named(table: TableConditions, condition: Condition) -> Condition:
        if condition.kind is not AlertKind.EXPIRY_BLOCKED:
            return condition
        stored = known.get((condition.kind, table.table_uuid))
        names = retainers.get(table.table, "What retains it was not read: the catalog took too long.")
        return replace(condition, summary=stored or f"{condition.summary} {names}")

    return tuple(replace(t, conditions=tuple(named(t, c) for c in t.conditions)) for t in tables)


def _retainers_within(tables: Sequence[str], context: Context, seconds: float) -> Mapping[str, str]:
    """The retainers of as many tables as the catalog answers for in this time. A thread reads, because a read of a catalog
    may hang. It ends after the read that it is in."""
    retainers: dict[str, str] = {}
    if not tables:
        return retainers
    is_late = Event()

    def read() -> None:
        for table in tables:
            text = _retainers(table, context)
            if is_late.is_set():
                return
            retainers[table] = text

    thread = Thread(target=read, name="alert retainers", daemon=True)
    thread.start()
    thread.join(seconds)
    is_late.set()
    return dict(retainers)


def _retainers(table: str, context: Context) -> str:
    try:
        retention = assess(TableId.parse(table), context, (Operation.EXPIRE_SNAPSHOTS,)).retention
    except Exception as why:  # noqa: BLE001 - the alert is sent without the names
        return f"What retains it could not be read: {context.process.redacted_error(why)}"
    retainers = described_retainers(retention)
    return (
        f"Retained by {'; '.join(retainers)}." if retainers else "Nothing retains it: the expiry has not run."
    )


_LEASE = "alerts"
"""The lease of the cycle: one process sends at a time."""
_LEASE_SECONDS = 120
SEND_SECONDS = 60.0
"""One receiver may take this long. The timeout of a receiver is one of each read, and a slow one may answer a byte at a
time. The lease lasts longer."""


@dataclass(frozen=True, slots=True)
class ConfiguredReceiver:
    """A receiver and the owners whose incidents it gets; without owners it gets all. `make` opens nothing."""

    owners: frozenset[str]
    make: Callable[[], Receiver]


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one cycle did. `failures` has the error of each receiver that did not take its messages; they are sent
    again by the next cycle. `is_busy`: another process held the lease, and nothing was done."""

    incidents: tuple[Incident, ...] = ()
    sent: int = 0
    failures: Mapping[str, IcebergMaintError] | None = None
    is_busy: bool = False


def run_alert_cycle(
    context: Context,
    receivers: Mapping[str, ConfiguredReceiver],
    send_seconds: float = SEND_SECONDS,
    holder_seconds: float = HOLDER_SECONDS,
) -> PassReport:
    """Judges every known table and sends each receiver what it has not taken.

    Incidents are stored before and after each message: a process that dies between a message and its storage
    sends that message a second time, with the same ids, and loses none.
    """
    ledger = context.ledger
    lease = ledger.leases.acquire(_LEASE, _LEASE, f"alerts {uuid4().hex}", _LEASE_SECONDS, 0)
    if lease is None:
        return PassReport(is_busy=True)
    try:
        now_ms = ledger.registry.now_ms()
        known = ledger.health.known_tables()
        stored = ledger.registry.incidents()
        conditions = tuple(judge_tables(context, known, now_ms))
        ledger.leases.heartbeat(lease)
        judged = named_retainers(conditions, stored, context, holder_seconds)
        incidents = follow(stored, judged, {k.table_uuid for k in known}, now_ms)
        ledger.registry.replace_incidents(lease, incidents)
        sent, failures = 0, dict[str, IcebergMaintError]()
        for name, receiver in receivers.items():
            messages = messages_for(name, receiver.owners, incidents)
            open_incidents = _open_of(receiver.owners, incidents)
            ledger.leases.heartbeat(lease)
            try:
                _send(receiver, messages, open_incidents, now_ms, send_seconds)
            except Exception as why:  # noqa: BLE001 - no receiver may keep the others from their messages
                failures[name] = _failure(name, why, context)
                continue
            if not messages.is_empty:
                sent += 1
                incidents = taken(name, messages, incidents)
                ledger.registry.replace_incidents(lease, incidents)
        incidents = unfinished(incidents, receivers)
        ledger.registry.replace_incidents(lease, incidents)
        return PassReport(incidents, sent, failures)
    finally:
        ledger.leases.release(lease)


def _send(
    receiver: ConfiguredReceiver,
    messages: Messages,
    open_incidents: Sequence[Incident],
    now_ms: int,
    seconds: float,
) -> None:
    """Sends in a thread. Raises what the receiver raises, and TimeoutError after the limit. The thread then ends by
    itself, and the next cycle sends the messages again, with the same ids."""
    raised: list[Exception] = []

    def run() -> None:
        try:
            receiver.make().send(messages, open_incidents, now_ms)
        except Exception as why:  # noqa: BLE001 - raised again by the caller
            raised.append(why)

    thread = Thread(target=run, name="alert receiver", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError(f"no answer within {seconds:g} s")
    if raised:
        # An error of HTTP holds its connection. In the list it would live as long as its own traceback.
        raise raised.pop()


def _open_of(owners: frozenset[str], incidents: Sequence[Incident]) -> tuple[Incident, ...]:
    return tuple(
        i
        for i in incidents
        if i.fired_ms is not None and i.cleared_ms is None and (not owners or not owners.isdisjoint(i.owners))
    )


def send_test(name: str, receiver: ConfiguredReceiver, incident: Incident, context: Context) -> None:
    """Sends the beginning and the end of one incident that has ended. Raises IcebergMaintError ICM-151 if the receiver
    does not take them."""
    begun, ended = replace(incident, cleared_ms=None), Messages((), (incident,))
    try:
        made = receiver.make()
        made.send(Messages((begun,), ()), (begun,), incident.since_ms)
        made.send(ended, (), incident.since_ms)
    except Exception as why:  # noqa: BLE001 - any failure is the answer of the test
        raise _failure(name, why, context, "Then send the test again.") from None


def _failure(
    name: str, why: Exception, context: Context, then: str = "The next cycle sends the messages again."
) -> IcebergMaintError:
    cause = " ".join(context.process.masked(f"{type(why).__name__}: {why}").split())[:300]
    return IcebergMaintError(
        "ICM-151",
        f"alerts: receiver {name} did not take the messages: {cause}.",
        f"check alerts.receivers.{name} and the receiver. {then}",
    )
