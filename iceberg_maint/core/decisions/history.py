"""History: the facts about earlier runs that a decision needs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from iceberg_maint.core.model.ids import PartitionKey
from iceberg_maint.core.model.reasons import Reason


@dataclass(frozen=True, slots=True)
class PartitionHistory:
    """Back-off and quarantine of one partition.

    `ineffective` counts failed or ineffective attempts in a row. `crashes` counts attempts in a row that
    never reported back. `environment_failures` counts attempts in a row that the environment failed: they lead to no
    quarantine. A success clears all.
    """

    ineffective: int = 0
    crashes: int = 0
    not_before_ms: int | None = None
    quarantined: bool = False
    reason: str = ""
    environment_failures: int = 0

    @property
    def vain_attempts(self) -> int:
        """The attempts in a row without effect, for any reason."""
        return self.ineffective + self.crashes + self.environment_failures


ENVIRONMENT_WAIT_MS = 40 * 60 * 1000
"""The longest wait of the automation after failures of the environment."""
FAULTY_CRASHES = 2
"""Crashes in a row that are a fault. The first one is resumed at once, with the files that it wrote."""
_NO_HISTORY = PartitionHistory()
ERROR_CODE = re.compile(r"ICM-\d+")
"""The code with which the message of an error begins."""
_NO_FAULT = frozenset(r.value for r in Reason)
"""Attempts that gained nothing or lost to other commits store their reason, attempts that failed a message."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure that lasts: of an operation on a partition, or of `READING` the table's metadata. The next success ends
    it."""

    operation: str
    partition: PartitionKey
    history: PartitionHistory


def faults_of(histories: Mapping[str, Mapping[PartitionKey, PartitionHistory]]) -> tuple[Fault, ...]:
    """Returns the faults in the histories of a table, by operation."""
    return tuple(
        Fault(operation, partition, history)
        for operation, partitions in histories.items()
        for partition, history in partitions.items()
        if _is_fault(history)
    )


def _is_fault(history: PartitionHistory) -> bool:
    if history.reason in _NO_FAULT:
        return False
    is_coded = ERROR_CODE.match(history.reason) is not None
    return is_coded or history.quarantined or history.ineffective > 0 or history.crashes >= FAULTY_CRASHES


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause by an operator, of one table or of the whole fleet. `by` names the operator.
    `since_ms` is the ledger's time of the pause."""

    note: str
    by: str
    since_ms: int
    fleet: bool = False


@dataclass(frozen=True, slots=True)
class FleetWait:
    """A partition that waits for the budget of the fleet: since when, and until when it is expected to."""

    since_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class TableHistory:
    """The ledger's facts about one table and operation. `pauses` holds the table's own pause before the
    fleet's; `paused_reason` is the note of the first. `last_done_ms` is the time when the operation last
    ended without failure, with or without effect. `fleet_waits` are the partitions that wait for the budget of the
    fleet now. `faults` are those of all operations on the table."""

    paused: bool = False
    paused_reason: str = ""
    pauses: tuple[Pause, ...] = ()
    lease_owner: str | None = None
    unknown_commits: int = 0
    hour_partitions: int = 0
    hour_bytes: int = 0
    last_done_ms: int | None = None
    partitions: Mapping[PartitionKey, PartitionHistory] = field(default_factory=dict)
    fleet_waits: Mapping[PartitionKey, FleetWait] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()

    def of(self, partition: PartitionKey) -> PartitionHistory:
        """Returns the partition's history; an empty one if there is none."""
        return self.partitions.get(partition, _NO_HISTORY)


def combine_histories(histories: Sequence[TableHistory]) -> TableHistory:
    """Combines several operations' histories of one table: a partition waits if any operation waits, and
    the work of the hour adds up. Raises ValueError for no histories."""
    first, *others = histories
    if not others:
        return first
    partitions: dict[PartitionKey, PartitionHistory] = {}
    for history in histories:
        for key, partition_history in history.partitions.items():
            partitions[key] = (
                _worse(partitions[key], partition_history) if key in partitions else partition_history
            )
    return TableHistory(
        paused=any(h.paused for h in histories),
        paused_reason=next((h.paused_reason for h in histories if h.paused), ""),
        pauses=next((h.pauses for h in histories if h.paused), ()),
        lease_owner=next((h.lease_owner for h in histories if h.lease_owner is not None), None),
        unknown_commits=sum(h.unknown_commits for h in histories),
        hour_partitions=sum(h.hour_partitions for h in histories),
        hour_bytes=sum(h.hour_bytes for h in histories),
        partitions=partitions,
        fleet_waits=first.fleet_waits,
        faults=first.faults,
    )


def _worse(history: PartitionHistory, other: PartitionHistory) -> PartitionHistory:
    waits = [h.not_before_ms for h in (history, other) if h.not_before_ms is not None]
    # The reason is that of the history that blocks longest.
    worst = max((history, other), key=lambda h: (h.quarantined, h.not_before_ms or 0))
    return PartitionHistory(
        ineffective=max(history.ineffective, other.ineffective),
        crashes=max(history.crashes, other.crashes),
        not_before_ms=max(waits, default=None),
        quarantined=history.quarantined or other.quarantined,
        reason=worst.reason,
        environment_failures=max(history.environment_failures, other.environment_failures),
    )


@dataclass(frozen=True, slots=True)
class PastWork:
    """One earlier batch. `is_lost`: other commits won."""

    at_ms: int
    seconds: float
    partitions: tuple[PartitionKey, ...]
    is_landed: bool
    is_lost: bool


@dataclass(frozen=True, slots=True)
class CommitLosses:
    """How many batches other commits won, and the seconds that all batches worked."""

    lost: int = 0
    seconds: float = 0.0


def commit_losses(partition: PartitionKey, work: Sequence[PastWork]) -> CommitLosses:
    """Returns the losses of the batches that had the partition. Batches that ended otherwise are left out."""
    own = [w for w in work if partition in w.partitions and (w.is_landed or w.is_lost)]
    return CommitLosses(sum(w.is_lost for w in own), sum(w.seconds for w in own))
