"""One pass: judges the fleet, stores the incidents, sends what began and ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Thread
from uuid import uuid4

from iceberg_maint.alerts.facts import HOLDER_SECONDS, judge_tables, named_holders
from iceberg_maint.alerts.receivers import Receiver
from iceberg_maint.core.alerts.incident import (
    Incident,
    Messages,
    follow,
    messages_for,
    taken,
    unfinished,
)
from iceberg_maint.errors import IcebergMaintError
from iceberg_maint.runner.runtime import Runtime

_LEASE = "alerts"
"""The lease of the pass: one process sends at a time."""
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
    """What one pass did. `failures` has the error of each receiver that did not take its messages; they are sent
    again by the next pass. `is_busy`: another process held the lease, and nothing was done."""

    incidents: tuple[Incident, ...] = ()
    sent: int = 0
    failures: Mapping[str, IcebergMaintError] | None = None
    is_busy: bool = False


def run_alert_pass(
    runtime: Runtime,
    receivers: Mapping[str, ConfiguredReceiver],
    send_seconds: float = SEND_SECONDS,
    holder_seconds: float = HOLDER_SECONDS,
) -> PassReport:
    """Judges every known table and sends each receiver what it has not taken.

    Incidents are stored before and after each message: a process that dies between a message and its storage
    sends that message a second time, with the same ids, and loses none.
    """
    ledger = runtime.ledger
    lease = ledger.acquire_lease(_LEASE, _LEASE, f"alerts {uuid4().hex}", _LEASE_SECONDS, 0)
    if lease is None:
        return PassReport(is_busy=True)
    try:
        now_ms = ledger.now_ms()
        known = ledger.known_tables()
        stored = ledger.incidents()
        conditions = tuple(judge_tables(runtime, known, now_ms))
        ledger.heartbeat(lease)
        judged = named_holders(conditions, stored, runtime, holder_seconds)
        incidents = follow(stored, judged, {k.table_uuid for k in known}, now_ms)
        ledger.replace_incidents(lease, incidents)
        sent, failures = 0, dict[str, IcebergMaintError]()
        for name, receiver in receivers.items():
            messages = messages_for(name, receiver.owners, incidents)
            open_incidents = _open_of(receiver.owners, incidents)
            ledger.heartbeat(lease)
            try:
                _send(receiver, messages, open_incidents, now_ms, send_seconds)
            except Exception as why:  # noqa: BLE001 - no receiver may keep the others from their messages
                failures[name] = _failure(name, why, runtime)
                continue
            if not messages.is_empty:
                sent += 1
                incidents = taken(name, messages, incidents)
                ledger.replace_incidents(lease, incidents)
        incidents = unfinished(incidents, receivers)
        ledger.replace_incidents(lease, incidents)
        return PassReport(incidents, sent, failures)
    finally:
        ledger.release_lease(lease)


def _send(
    receiver: ConfiguredReceiver,
    messages: Messages,
    open_incidents: Sequence[Incident],
    now_ms: int,
    seconds: float,
) -> None:
    """Sends in a thread. Raises what the receiver raises, and TimeoutError after the limit. The thread then ends by
    itself, and the next pass sends the messages again, with the same ids."""
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


def send_test(name: str, receiver: ConfiguredReceiver, incident: Incident, runtime: Runtime) -> None:
    """Sends the beginning and the end of one incident that has ended. Raises IcebergMaintError ICM-151 if the receiver
    does not take them."""
    begun, ended = replace(incident, cleared_ms=None), Messages((), (incident,))
    try:
        made = receiver.make()
        made.send(Messages((begun,), ()), (begun,), incident.since_ms)
        made.send(ended, (), incident.since_ms)
    except Exception as why:  # noqa: BLE001 - any failure is the answer of the test
        raise _failure(name, why, runtime, "Then send the test again.") from None


def _failure(
    name: str, why: Exception, runtime: Runtime, then: str = "The next pass sends the messages again."
) -> IcebergMaintError:
    cause = " ".join(runtime.masked(f"{type(why).__name__}: {why}").split())[:300]
    return IcebergMaintError(
        "ICM-151",
        f"alerts: receiver {name} did not take the messages: {cause}.",
        f"check alerts.receivers.{name} and the receiver. {then}",
    )
