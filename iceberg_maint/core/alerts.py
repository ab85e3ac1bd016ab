"""Alerts: what is wrong with a table now, and the incidents of it that are sent once when they begin and once when they end."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from iceberg_maint.core.decisions.history import PartitionHistory, TableHistory
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import VERIFYING, shell_argument
from iceberg_maint.core.model.reasons import LOST_RACES, Decision, Reason, Verdict
from iceberg_maint.core.outcomes.outcome import BatchOutcome
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.core.policy.housekeeping import AlertsPolicy


class AlertKind(StrEnum):
    """The closed set of alerts. Each has a section in `docs/how-to/alerts.md`."""

    REPEATED_FAILURE = "repeated_failure"
    QUARANTINE = "quarantine"
    RED_COMMIT = "red_commit"
    UNKNOWN_COMMIT = "unknown_commit"
    APPROVAL_WAITING = "approval_waiting"
    NOT_OBSERVED = "not_observed"
    DUE_TOO_LONG = "due_too_long"
    NO_PROGRESS = "no_progress"
    EXPIRY_BLOCKED = "expiry_blocked"
    ORPHANS_GROWING = "orphans_growing"


ACTIONS: Mapping[AlertKind, str] = {
    AlertKind.REPEATED_FAILURE: "Remove the cause that `iceberg-maint why {table}` names. The partitions are tried "
    "again after their back-off.",
    AlertKind.QUARANTINE: "Remove the cause that `iceberg-maint why {table}` names, then run "
    "`iceberg-maint release {table}`.",
    AlertKind.RED_COMMIT: "Stop the maintainer that made the commit, and read the rows and the plan of the roll-back: "
    "`iceberg-maint attest {table}`.",
    AlertKind.UNKNOWN_COMMIT: "Run `iceberg-maint reconcile {table}`. If the commit stays unknown, the next run "
    "settles it.",
    AlertKind.APPROVAL_WAITING: "Read `iceberg-maint orphans scan {table}`. If it is right, approve it with "
    "`iceberg-maint orphans trash {table} --approve DIGEST`.",
    AlertKind.NOT_OBSERVED: "Check that Dagster's daemon or the scheduler of 'iceberg-maint observe' runs, and "
    "that the catalog answers: 'iceberg-maint doctor'.",
    AlertKind.DUE_TOO_LONG: "Read `iceberg-maint why {table}`: a budget, a blackout or another run delays the "
    "work. Raise the budget or lower the thresholds.",
    AlertKind.NO_PROGRESS: "Check that the automation runs, and read `iceberg-maint history {table}`.",
    AlertKind.EXPIRY_BLOCKED: "Stop the writer or unregister the reader that `iceberg-maint why {table}` names, or drop the "
    "tag.",
    AlertKind.ORPHANS_GROWING: "Find the writer that leaves files behind: `iceberg-maint orphans scan {table}`.",
}
"""What a person does about each kind. `{table}` stands for the table's name, as an argument of a shell's command."""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The stored facts about one table.

    `observed_ms` is the last observation. `decisions` and `histories` are those of the operations on data, in
    the same order. `last_commit_ms` is the last recorded commit of ours, None without one.
    `orphan_scans` are the outcomes of the last orphan scans, newest first.
    """

    measured: Measured
    observed_ms: int
    policy: Policy
    decisions: tuple[Decision, ...]
    histories: tuple[TableHistory, ...]
    last_commit_ms: int | None = None
    orphan_scans: tuple[BatchOutcome, ...] = ()

    @property
    def is_paused(self) -> bool:
        """Whether the policy or an operator pauses the table or the fleet."""
        return self.policy.paused or any(h.paused for h in self.histories)


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that is wrong now. It becomes an incident when it has lasted for `after_seconds`."""

    kind: AlertKind
    summary: str
    after_seconds: int = 0


def conditions(facts: TableFacts, now_ms: int) -> tuple[Condition, ...]:
    """Returns the conditions of the table. A policy without alerts has none."""
    if not facts.policy.alerts.enabled:
        return ()
    return tuple(_conditions(facts, facts.policy.alerts, now_ms))


def _conditions(facts: TableFacts, limits: AlertsPolicy, now_ms: int) -> Iterator[Condition]:
    yield from _failures(facts.histories)
    yield from _red_commits(facts.histories)
    unknown = sum(h.unknown_commits for h in facts.histories)
    if unknown:
        yield Condition(
            AlertKind.UNKNOWN_COMMIT, f"{_count(unknown, 'commit')} neither confirmed nor refuted."
        )
    yield from _orphans(facts.orphan_scans)
    longest = limits.not_observed_seconds
    if longest is not None and now_ms - facts.observed_ms > longest * 1000:
        ago = _ago((now_ms - facts.observed_ms) // 1000)
        yield Condition(AlertKind.NOT_OBSERVED, f"The table was last observed {ago} ago.")
    yield from _delays(facts, limits, now_ms)
    yield from _expiry(facts, limits, now_ms)


def _failures(histories: Sequence[TableHistory]) -> Iterator[Condition]:
    partitions = [(key, p) for h in histories for key, p in sorted(h.partitions.items())]
    quarantined = [(key, p) for key, p in partitions if p.quarantined]
    if quarantined:
        key, worst = quarantined[0]
        yield Condition(
            AlertKind.QUARANTINE,
            f"{_count(len({k for k, _ in quarantined}), 'partition')} in quarantine, such as "
            f"{key or 'the whole table'}: {worst.reason.removesuffix('.')}.",
        )
    failing = [(key, p) for key, p in partitions if not p.quarantined and _failures_in_a_row(p) >= _FAILURES]
    if failing:
        key, worst = max(failing, key=lambda item: _failures_in_a_row(item[1]))
        attempts = _failures_in_a_row(worst)
        yield Condition(
            AlertKind.REPEATED_FAILURE,
            f"{_count(attempts, 'attempt')} in a row failed or had no effect on {key or 'the whole table'}: "
            f"{worst.reason.removesuffix('.')}.",
        )


def _red_commits(histories: Sequence[TableHistory]) -> Iterator[Condition]:
    # Each history has the faults of all operations.
    faults = (f.history.reason for h in histories[:1] for f in h.faults if f.operation == VERIFYING)
    red = next((reason for reason in faults if reason.startswith(_RED)), None)
    if red is not None:
        yield Condition(AlertKind.RED_COMMIT, red.removeprefix(_RED).strip())


def _failures_in_a_row(history: PartitionHistory) -> int:
    lost_races = history.ineffective if history.reason in LOST_RACES else 0
    return history.vain_attempts - lost_races


_RED = "ICM-185"
_FAILURES = 3
"""Attempts in a row that failed or had no effect on one partition raise an alert."""
_GROWING_SCANS, _LEAST_ORPHANS = 3, 100
"""Orphan scans that each count more files than the one before, and the files from which they count, raise an alert."""


def _orphans(scans: Sequence[BatchOutcome]) -> Iterator[Condition]:
    if not scans:
        return
    newest = scans[0]
    if newest.reason is Reason.APPROVAL_REQUIRED:
        waiting = [h for h in newest.retained or () if h.marked_ms is None]
        files = sum(h.files for h in waiting)
        digests = ", ".join(h.mark_id for h in waiting)
        yield Condition(
            AlertKind.APPROVAL_WAITING,
            f"{_count(files, 'orphan file')} for a person to approve"
            + (f", digest {digests}." if digests else "."),
        )
    counts = [p.counts["orphan_files"] for p in scans if "orphan_files" in p.counts][:_GROWING_SCANS]
    grows = all(newer > older for newer, older in pairwise(counts))
    if len(counts) == _GROWING_SCANS and grows and counts[0] >= _LEAST_ORPHANS:
        trend = " → ".join(f"{c:,}" for c in reversed(counts))
        yield Condition(AlertKind.ORPHANS_GROWING, f"Each orphan scan counts more orphan files: {trend}.")


def _delays(facts: TableFacts, limits: AlertsPolicy, now_ms: int) -> Iterator[Condition]:
    # What loses every race to a busy writer is never over: its waits do not interrupt the time.
    deferred = {key for h in facts.histories for key, p in h.partitions.items() if p.reason in LOST_RACES}
    waiting = {p.partition for d in facts.decisions for p in d.partitions if p.reason is Reason.BACK_OFF}
    lost = deferred & waiting
    due = lost.union(p.partition for d in facts.decisions for p in d.due())
    if not due or any(d.reason is Reason.LEASE_HELD for d in facts.decisions):
        return
    if not lost and all(d.verdict is not Verdict.RUN for d in facts.decisions):
        return
    shown = f"{_count(len(due), 'partition')} due"
    if limits.due_seconds is not None:
        yield Condition(
            AlertKind.DUE_TOO_LONG,
            f"{shown} for longer than {_hours(limits.due_seconds)} without a break.",
            limits.due_seconds,
        )
    silence = limits.no_progress_seconds
    if silence is not None and (
        facts.last_commit_ms is None or now_ms - facts.last_commit_ms > silence * 1000
    ):
        yield Condition(
            AlertKind.NO_PROGRESS, f"{shown}, and nothing was committed for {_hours(silence)}.", silence
        )


def _expiry(facts: TableFacts, limits: AlertsPolicy, now_ms: int) -> Iterator[Condition]:
    policy, oldest_ms = facts.policy.expire_snapshots, facts.measured.table_health.oldest_snapshot_ms
    if not policy.enabled or limits.expiry_grace_seconds is None or oldest_ms is None:
        return
    if facts.measured.table_health.snapshots <= max(1, policy.min_snapshots_to_keep):
        return
    kept_seconds = policy.max_snapshot_age_seconds + limits.expiry_grace_seconds
    age_seconds = (now_ms - oldest_ms) // 1000
    if age_seconds > kept_seconds:
        yield Condition(
            AlertKind.EXPIRY_BLOCKED,
            f"The oldest snapshot is {age_seconds // 86_400} days old. The policy keeps snapshots for "
            f"{_hours(policy.max_snapshot_age_seconds)}.",
        )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _hours(seconds: int) -> str:
    if seconds < 7200:
        return f"{seconds // 60} minutes"
    return f"{seconds / 3600:g} hours" if seconds < 172_800 else f"{seconds / 86_400:g} days"


def _ago(seconds: int) -> str:
    for noun, unit in (("day", 86_400), ("hour", 3600)):
        if seconds >= 2 * unit:
            return _count(seconds // unit, noun)
    return _count(seconds // 60, "minute")


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
    """Returns the incidents after one reading of the tables.

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
