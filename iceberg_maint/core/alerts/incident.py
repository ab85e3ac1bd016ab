"""Incidents: conditions that last, sent once when they begin and once when they end."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from iceberg_maint.core.alerts.condition import ACTIONS, AlertKind, Condition
from iceberg_maint.core.model.ids import shell_argument

RUNBOOK = "docs/how-to/alerts.md"
"""The page with a section for each kind of alert."""


@dataclass(frozen=True, slots=True)
class Incident:
    """One condition of one table from its first to its last observation.

    `since_ms` is when the condition was first seen. `fired_ms` is when it had lasted long enough, None before.
    `cleared_ms` is when a fired incident ended. `fired_to` and `cleared_to` are the receivers that took the
    message.
    """

    kind: AlertKind
    table: str
    table_uuid: str
    summary: str
    owners: tuple[str, ...]
    since_ms: int
    fired_ms: int | None = None
    cleared_ms: int | None = None
    fired_to: tuple[str, ...] = ()
    cleared_to: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[AlertKind, str]:
        """Identifies the incident: one per kind and table is open at a time."""
        return (self.kind, self.table_uuid)

    @property
    def incident_id(self) -> str:
        """The same id in the message of the beginning and of the end, so that a receiver can drop a repetition."""
        return f"{self.kind.value}/{self.table_uuid}/{self.since_ms}"

    @property
    def action(self) -> str:
        """What a person does about it."""
        return ACTIONS[self.kind].format(table=shell_argument(self.table))

    @property
    def runbook(self) -> str:
        """The section of the runbook."""
        return f"{RUNBOOK}#{self.kind.value}"


@dataclass(frozen=True, slots=True)
class TableConditions:
    """The conditions of one table that could be judged. `is_muted`: a pause mutes the table."""

    table: str
    table_uuid: str
    owners: tuple[str, ...]
    conditions: tuple[Condition, ...]
    is_muted: bool = False


def follow(
    incidents: Sequence[Incident],
    tables: Sequence[TableConditions],
    known: Collection[str],
    now_ms: int,
) -> tuple[Incident, ...]:
    """Returns the incidents after one look at the tables.

    `known` has the UUIDs of all tables. A table that is known and not in `tables` could not be judged; its
    incidents stay as they are. The incidents of an unknown table end. A muted table starts and ends none.
    A condition that ends before it fired leaves nothing.
    """
    judged = {t.table_uuid: t for t in tables}
    open_incidents = {i.key: i for i in incidents if i.cleared_ms is None}
    result = [i for i in incidents if i.cleared_ms is not None]
    for incident in open_incidents.values():
        table = judged.get(incident.table_uuid)
        if (table is None and incident.table_uuid in known) or (table is not None and table.is_muted):
            result.append(incident)
            continue
        persists = table is not None and incident.kind in {c.kind for c in table.conditions}
        if not persists and incident.fired_ms is not None:
            result.append(replace(incident, cleared_ms=now_ms))
    for table in tables:
        if not table.is_muted:
            result += [_observed(c, table, open_incidents, now_ms) for c in table.conditions]
    return tuple(sorted(result, key=lambda i: (i.since_ms, i.table, i.kind)))


def _observed(
    condition: Condition,
    table: TableConditions,
    open_incidents: Mapping[tuple[AlertKind, str], Incident],
    now_ms: int,
) -> Incident:
    earlier = open_incidents.get((condition.kind, table.table_uuid))
    incident = replace(
        earlier or Incident(condition.kind, table.table, table.table_uuid, "", (), now_ms),
        table=table.table,
        summary=condition.summary,
        owners=table.owners,
    )
    lasts = now_ms - incident.since_ms >= condition.after_seconds * 1000
    return replace(incident, fired_ms=now_ms) if incident.fired_ms is None and lasts else incident


@dataclass(frozen=True, slots=True)
class Messages:
    """What one receiver has not taken yet."""

    fired: tuple[Incident, ...]
    cleared: tuple[Incident, ...]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to send."""
        return not self.fired and not self.cleared


def messages_for(receiver: str, owners: frozenset[str], incidents: Sequence[Incident]) -> Messages:
    """Returns what a receiver must get. `owners` limits it to the incidents of these owners, empty: all. An end
    goes only to a receiver that took the beginning."""
    own = [i for i in incidents if not owners or not owners.isdisjoint(i.owners)]
    return Messages(
        tuple(
            i for i in own if i.fired_ms is not None and i.cleared_ms is None and receiver not in i.fired_to
        ),
        tuple(
            i
            for i in incidents
            if i.cleared_ms is not None and receiver in i.fired_to and receiver not in i.cleared_to
        ),
    )


def taken(receiver: str, messages: Messages, incidents: Sequence[Incident]) -> tuple[Incident, ...]:
    """Returns the incidents after the receiver took the messages."""
    fired, cleared = {i.incident_id for i in messages.fired}, {i.incident_id for i in messages.cleared}
    return tuple(
        replace(
            i,
            fired_to=(*i.fired_to, receiver) if i.incident_id in fired else i.fired_to,
            cleared_to=(*i.cleared_to, receiver) if i.incident_id in cleared else i.cleared_to,
        )
        for i in incidents
    )


def unfinished(incidents: Sequence[Incident], receivers: Collection[str]) -> tuple[Incident, ...]:
    """Returns the incidents without those whose end every configured receiver of the beginning has taken."""
    return tuple(
        i
        for i in incidents
        if i.cleared_ms is None or any(r in receivers and r not in i.cleared_to for r in i.fired_to)
    )
