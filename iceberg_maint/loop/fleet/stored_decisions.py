"""Decisions from stored health, without the catalog, and those that a process remembers."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from iceberg_maint.core.decisions.applicability import SPARK_4, RowTypes, coexistence_policy, readers_policy
from iceberg_maint.core.decisions.decide import decide
from iceberg_maint.core.decisions.history import TableHistory, combine_histories
from iceberg_maint.core.decisions.rules import Situation
from iceberg_maint.core.decisions.table_decision import combine_decisions
from iceberg_maint.core.decisions.waits import decided
from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import (
    DATA_OPERATIONS,
    Operation,
    TableId,
)
from iceberg_maint.core.model.reasons import Decision
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.ports.ledger import Ledger


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
    stored = ledger.health.histories({measured.table_uuid: str(measured.table)})
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
