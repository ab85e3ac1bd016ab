"""What a run has read of one table, so that it reads nothing twice while the table stays the same."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import PartitionKey
from iceberg_maint.core.model.table_state import LiveFile, TableState
from iceberg_maint.core.policy.data import Policy


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
