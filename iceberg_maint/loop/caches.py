"""What a process remembers: readings of a table, speeds of batches, decisions from stored health."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from iceberg_maint.core.decisions.applicability import SPARK_4, RowTypes
from iceberg_maint.core.decisions.decide import Situation, decide
from iceberg_maint.core.decisions.fleet_budget import FleetBudget, Spend
from iceberg_maint.core.decisions.history import TableHistory, combine_histories
from iceberg_maint.core.decisions.other_engines import coexistence_policy, readers_policy
from iceberg_maint.core.decisions.priority import BATCH_SECONDS, Load, Speed
from iceberg_maint.core.decisions.table_decision import combine_decisions
from iceberg_maint.core.decisions.waits import decided
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import DATA_OPERATIONS, Operation, PartitionKey, TableId
from iceberg_maint.core.model.reasons import Decision
from iceberg_maint.core.model.table_state import LiveFile, TableState
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.ports.ledger import Ledger


@dataclass(frozen=True, slots=True)
class _Measurement:
    state: TableState
    policy: Policy
    measured: Measured


@dataclass(frozen=True, slots=True)
class _Files:
    state: TableState
    partitions: frozenset[PartitionKey]
    files: tuple[LiveFile, ...]


class TableMemory:
    """The last state, measurement and live files of one table, for the time of one run.

    A state is used again only if the catalog, asked again, still names its metadata file: such a file never changes.
    A measurement is used again for an equal state and an equal policy. Its numbers are in the ledger already.
    """

    def __init__(self) -> None:
        self._state: TableState | None = None
        self._measurement: _Measurement | None = None
        self._files: _Files | None = None

    def pin(self, pin: Callable[[TableState | None], TableState]) -> TableState:
        """Returns the state that `pin` returns, which gets the last one."""
        self._state = pin(self._state)
        return self._state

    def measure(self, state: TableState, policy: Policy, measure: Callable[[], Measured]) -> Measured:
        """Returns the measurement of an equal state by an equal policy, or else what `measure` returns."""
        last = self._measurement
        if last is None or (last.state, last.policy) != (state, policy):
            last = self._measurement = _Measurement(state, policy, measure())
        return last.measured

    def live_files(
        self,
        state: TableState,
        partitions: Collection[PartitionKey],
        read: Callable[[], tuple[LiveFile, ...]],
    ) -> tuple[LiveFile, ...]:
        """Returns the files last read for an equal state and the same partitions, or else what `read` returns."""
        last, keys = self._files, frozenset(partitions)
        if last is None or (last.state, last.partitions) != (state, keys):
            last = self._files = _Files(state, keys, read())
        return last.files


_LEAST_BATCHES = 10
"""Batches from which the speed is measured."""
_SPEED_SECONDS = 60.0
"""A process does not measure the speed for a judgement again within this time: it reads every batch of the period."""


class RememberedSpeed:
    """The speed of the fleet that a process measured last. Threads may share it: at worst two of them measure."""

    def __init__(self) -> None:
        self._measured: tuple[float, Speed] | None = None

    def of(self, ledger: Ledger, budget: FleetBudget, seconds: float) -> Speed:
        """Returns the speed, measured again once it is old. `seconds` are those of a monotonic clock."""
        known = self._measured
        if known is None or not 0 <= seconds - known[0] < _SPEED_SECONDS:
            known = self._measured = seconds, spends_of(ledger, budget)[1]
        return known[1]


def spends_of(ledger: Ledger, budget: FleetBudget) -> tuple[tuple[Spend, ...], Speed]:
    """Returns what was spent in the period, and the speed of its batches. A batch that has not ended counts with its predicted seconds."""
    spends = ledger.fleet_spends(budget.period_seconds)
    speed = measured_speed(spends)
    return tuple(replace(s, load=batch_load(s.load.bytes, speed)) if s.is_open else s for s in spends), speed


def batch_load(input_bytes: int, speed: Speed) -> Load:
    """The predicted load of one batch of this size."""
    cpu_rate = speed.bytes_per_cpu_second
    return Load(
        input_bytes,
        BATCH_SECONDS + input_bytes / speed.bytes_per_second,
        1.0,
        None if cpu_rate is None else BATCH_SECONDS + input_bytes / cpu_rate,
    )


def measured_speed(spends: Sequence[Spend]) -> Speed:
    """Returns the speed of the batches of the period; the assumed one while they are few."""
    rate = _rate([(s.load.bytes, s.load.seconds) for s in spends])
    cpu_rate = _rate([(s.load.bytes, s.load.cpu_seconds or 0.0) for s in spends])
    return Speed(Speed().bytes_per_second if rate is None else rate, cpu_rate)


def _rate(ended: Sequence[tuple[int, float]]) -> float | None:
    """Bytes per second of batches whose seconds are known, None while they are few."""
    known = [(size, taken) for size, taken in ended if taken > 0]
    seconds = sum(max(0.0, taken - BATCH_SECONDS) for _, taken in known)
    if len(known) < _LEAST_BATCHES or seconds <= 0:
        return None
    return max(1.0, sum(size for size, _ in known) / seconds)


def decide_stored(
    measured: Measured, policy: Policy, ledger: Ledger, now_ms: int, readers: RowTypes = SPARK_4
) -> tuple[TableHistory, Decision]:
    """Returns history and decision on a table's data from its stored health, without the catalog."""
    histories, decisions = stored_decisions(measured, policy, ledger, now_ms, readers)
    return combine_histories(histories), combine_decisions(decisions)


def stored_decisions(
    measured: Measured, policy: Policy, ledger: Ledger, now_ms: int, readers: RowTypes = SPARK_4
) -> tuple[tuple[TableHistory, ...], tuple[Decision, ...]]:
    """Returns histories and decisions of each operation on a table's data, from its stored health."""
    stored = ledger.histories({measured.table_uuid: str(measured.table)})
    histories = {o: stored[measured.table_uuid, o] for o in DATA_OPERATIONS}
    return tuple(histories.values()), decisions_of(measured, policy, histories, now_ms, readers)


def decisions_of(
    measured: Measured,
    policy: Policy,
    histories: Mapping[Operation, TableHistory],
    now_ms: int,
    readers: RowTypes = SPARK_4,
) -> tuple[Decision, ...]:
    """Returns the decisions of the operations in `histories`, from stored health."""
    policy = coexistence_policy(readers_policy(policy, measured), measured.foreign, now_ms)
    situation = Situation(measured, policy, histories, now_ms, readers=readers)
    return tuple(decide(operation, situation) for operation in histories)


T = TypeVar("T")
KEPT_UNITS = 100_000
"""What is remembered at most: each decision counts as one, and so does each due partition and each partition with a
history; about 0.3 KB each."""


@dataclass(frozen=True, slots=True)
class Basis:
    """What a decision follows from, beside the time."""

    measured: Measured
    policy: Policy
    histories: Mapping[Operation, TableHistory]
    readers: RowTypes

    def key(self) -> _Key | None:
        """What is equal for equal bases, without the partitions. None if the health is not from stored bytes."""
        digest = getattr(self.measured.partitions, "digest", None)
        if digest is None:
            return None
        return _Key(replace(self.measured, partitions={}), digest, self.policy, self.histories, self.readers)


@dataclass(frozen=True, slots=True)
class _Key:
    head: Measured
    partitions: bytes
    policy: Policy
    histories: Mapping[Operation, TableHistory]
    readers: RowTypes

    @property
    def units(self) -> int:
        return sum(len(h.partitions) + len(h.fleet_waits) for h in self.histories.values())


@dataclass(frozen=True, slots=True)
class _Decision:
    key: _Key
    value: Any
    first_ms: int
    last_ms: int
    units: int


class RememberedDecisions:
    """The last decision of each use on each table. Threads may share it."""

    def __init__(self, kept: int = KEPT_UNITS) -> None:
        self._kept, self._units = kept, 0
        self._decisions: OrderedDict[tuple[str, TableId], _Decision] = OrderedDict()
        self._lock = threading.Lock()

    def decide(
        self, use: str, basis: Basis, now_ms: int, decide: Callable[[int], T], due: Callable[[T], int]
    ) -> T:
        """Returns what `decide` returns for this time, which it is called for only if the basis is another one than last time, or
        if the time may change the answer. `decide` follows from the basis and the time. `due` counts the due partitions of
        its value."""
        place, key = (use, basis.measured.table), basis.key()
        if key is None:
            return decide(now_ms)
        with self._lock:
            known = self._decisions.get(place)
            if known is not None and known.first_ms <= now_ms <= known.last_ms and known.key == key:
                self._decisions.move_to_end(place)
                return cast("T", known.value)
        value, first_ms, last_ms = decided(decide, now_ms)
        self._keep(place, _Decision(key, value, first_ms, last_ms, 1 + key.units + due(value)))
        return value

    def _keep(self, place: tuple[str, TableId], decision: _Decision) -> None:
        with self._lock:
            if (before := self._decisions.pop(place, None)) is not None:
                self._units -= before.units
            self._decisions[place] = decision
            self._units += decision.units
            while self._units > self._kept:
                self._units -= self._decisions.popitem(last=False)[1].units
