"""Catalogs: the configured catalogs of a process, the finding of names in them, and the time limits of their calls."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import PartitionKey, TableId
from iceberg_maint.core.model.table_state import LiveFile, TableState
from iceberg_maint.core.policy.data import Policy
from iceberg_maint.errors import IcebergMaintError, UnknownTableError
from iceberg_maint.machine.bounded_calls import MOST_LOST, CallLimits, LateError, Limit, Threads
from iceberg_maint.ports.catalog import Catalog

T = TypeVar("T")


class TableMemory:
    """The last state, measurement and live files of one table, for the time of one run.

    A state is used again only if the catalog, asked again, still names its metadata file: such a file never changes.
    A measurement is used again for an equal state and an equal policy. Its numbers are in the ledger already.
    """

    def __init__(self) -> None:
        self._state: TableState | None = None
        self._measured: tuple[TableState, Policy, Measured] | None = None
        self._files: tuple[TableState, frozenset[PartitionKey], tuple[LiveFile, ...]] | None = None

    def pin(self, pin: Callable[[TableState | None], TableState]) -> TableState:
        """Returns the state that `pin` returns, which gets the last one."""
        self._state = pin(self._state)
        return self._state

    def measure(self, state: TableState, policy: Policy, measure: Callable[[], Measured]) -> Measured:
        """Returns the measurement of an equal state by an equal policy, or else what `measure` returns."""
        if self._measured is None or self._measured[:2] != (state, policy):
            self._measured = state, policy, measure()
        return self._measured[2]

    def live_files(
        self,
        state: TableState,
        partitions: Collection[PartitionKey],
        read: Callable[[], tuple[LiveFile, ...]],
    ) -> tuple[LiveFile, ...]:
        """Returns the files last read for an equal state and the same partitions, or else what `read` returns."""
        keys = frozenset(partitions)
        if self._files is None or self._files[:2] != (state, keys):
            self._files = state, keys, read()
        return self._files[2]


@dataclass(frozen=True, slots=True, eq=False)
class Catalogs(Mapping[str, Catalog]):
    """The adapters of the configured catalogs, by name.

    `calls` counts the calls of this process to all of them. `threads` make the calls that may hang. `within_seconds` is the
    time that a caller has for a call, None for the limits of the catalog. `memory` is of the table of one run; None outside
    of runs.
    """

    adapters: Mapping[str, Catalog]
    calls: Callable[[], int]
    threads: Threads = field(default_factory=Threads)
    within_seconds: float | None = None
    memory: TableMemory | None = None

    def __getitem__(self, name: str) -> Catalog:
        return self.adapters[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.adapters)

    def __len__(self) -> int:
        return len(self.adapters)

    def within(self, seconds: float) -> Catalogs:
        """Returns the catalogs of a caller that has so many seconds for a call, or for a reading of its tables."""
        return replace(self, within_seconds=seconds)

    def of_one_run(self) -> Catalogs:
        """Returns the catalogs of a run on one table, with a memory of that table."""
        return replace(self, memory=TableMemory())

    def of(self, table: TableId) -> Catalog:
        """Returns the table's catalog. Raises UnknownTableError for one that the configuration lacks."""
        try:
            return self.adapters[table.catalog]
        except KeyError:
            raise UnknownTableError(
                "ICM-126",
                f"{table}: the configuration has no catalog '{table.catalog}'.",
                f"name one of {', '.join(sorted(self))}.",
            ) from None

    def pin(self, table: TableId) -> TableState:
        """Returns the current state of the table. Raises what the catalog raises."""
        catalog = self.of(table)
        if self.memory is None:
            return self.in_time(table, lambda: catalog.pin(table))
        return self.memory.pin(lambda known: self.in_time(table, lambda: catalog.pin(table, known)))

    def live_files(self, state: TableState, partitions: Collection[PartitionKey]) -> tuple[LiveFile, ...]:
        """Returns the live files of these partitions. Raises what the catalog raises."""
        catalog = self.of(state.table)

        def read() -> tuple[LiveFile, ...]:
            return self.interruptible(state.table, lambda: catalog.live_files(state, partitions))

        return read() if self.memory is None else self.memory.live_files(state, partitions, read)

    # time limits

    def limits_of(self, name: str) -> CallLimits | None:
        """Returns the limits of a cycle over this catalog; None for one in memory."""
        limits = self.adapters[name].cycle_limits
        return None if limits is None else limits.within(self.within_seconds)

    def in_time(self, table: TableId, work: Callable[[], T]) -> T:
        """Returns what `work` reads of the table. A signal or the deadline of the table interrupts the wait for it. Raises
        what it raises, IcebergMaintError ICM-179 if that takes longer than the `read_timeout_seconds` of the catalog."""
        if table.catalog not in self.adapters:
            return work()
        return self._in_time(table.catalog, work, lambda _name, *late: late_table(table, *late))

    def list_in_time(self, name: str, work: Callable[[], T]) -> T:
        """As `in_time`, for what `work` reads of the list of tables of a catalog."""
        return self._in_time(name, work, late_catalog)

    def probe_in_time(self, name: str, work: Callable[[], T]) -> T:
        """As `in_time`, for a probe of the warehouse of a catalog."""
        return self._in_time(name, work, late_warehouse)

    def _in_time(
        self, name: str, work: Callable[[], T], error: Callable[[str, LateError, float | None], Exception]
    ) -> T:
        limits = self.limits_of(name)
        if limits is None:
            return work()
        try:
            return self.threads.call(work, limits.call_seconds)
        except LateError as late:
            raise error(name, late, self.within_seconds) from None

    def interruptible(self, table: TableId, work: Callable[[], T]) -> T:
        """As `in_time`, without a time: for reads of many files."""
        if self.of(table).cycle_limits is None:
            return work()
        return self.threads.call(work, None)

    # names

    def tables(self) -> tuple[TableId, ...]:
        """Returns every table of every catalog, sorted."""
        return tuple(sorted(t for catalog in self.adapters.values() for t in catalog.tables()))

    def parse(self, name: str) -> TableId:
        """Returns the table of this name. The name may omit the catalog if only one is configured.

        Raises UnknownTableError ICM-126 for a name that no configured catalog can have.
        """
        known = sorted(self)
        parts = name.split(".")
        if len(known) == 1 and (parts[0] != known[0] or len(parts) == 2):
            parts = [*known, *parts]
        if parts[0] not in known or len(parts) < 3 or not all(parts):
            raise UnknownTableError(
                "ICM-126",
                f"'{name}' is no table name of catalog {', '.join(known)}.",
                "write catalog.namespace.table; see 'iceberg-maint tables'.",
            )
        return TableId(parts[0], tuple(parts[1:-1]), parts[-1])

    def find(self, name: str) -> TableId:
        """Returns the table of this name. Raises UnknownTableError ICM-126 with similar names if the catalog
        does not list it.
        """
        table = self.parse(name)
        listed = self.adapters[table.catalog].tables()
        if table in listed:
            return table
        # A name with a dot within a part is split into other parts. The table is found, and refused by its pin.
        for other in listed:
            if str(other) == str(table):
                return other
        # Without the catalog: all names share it.
        names = {str(t).removeprefix(f"{t.catalog}."): str(t) for t in listed}
        typed = str(table).removeprefix(f"{table.catalog}.")
        near = [names[n] for n in difflib.get_close_matches(typed, names, n=3, cutoff=0.7)]
        hint = f"did you mean {', '.join(near)}?" if near else "list the tables with 'iceberg-maint tables'."
        raise UnknownTableError("ICM-126", f"catalog {table.catalog} has no table '{table}'.", hint)


_STAYS = "What is known of it stays as it is."


def late_table(table: TableId, late: LateError, within: float | None = None) -> IcebergMaintError:
    """Returns the error of a table that was not read in time. `within` are the seconds that the caller had."""
    name = table.catalog
    time = _time(name, late, within)
    match late.limit:
        case Limit.CALL:
            what = f"{table}: catalog '{name}' or the store of the table gave no answer within {time}."
        case Limit.ALL:
            what = f"{table}: the cycle over catalog '{name}' did not come to it within {time}."
        case Limit.LOST:
            what = (
                f"{table}: {MOST_LOST} other tables of catalog '{name}' gave no answer within {time}, so the cycle leaves "
                "out the rest."
            )
    return IcebergMaintError("ICM-179", f"{what} {_STAYS}", _fix(name, late))


def late_catalog(name: str, late: LateError, within: float | None = None) -> IcebergMaintError:
    """Returns the error of a catalog that did not list its tables in time."""
    what = f"catalog '{name}' did not list its tables within {_time(name, late, within)}."
    return IcebergMaintError("ICM-179", f"{what} {_STAYS}", _fix(name, late))


def late_warehouse(name: str, late: LateError, within: float | None = None) -> IcebergMaintError:
    """Returns the error of a catalog whose warehouse did not answer in time."""
    what = f"the warehouse of catalog '{name}' gave no answer within {_time(name, late, within)}."
    return IcebergMaintError("ICM-179", what, _fix(name, late))


def _setting(name: str, late: LateError) -> str:
    return f"catalogs.{name}.{'cycle_timeout_seconds' if late.limit is Limit.ALL else 'read_timeout_seconds'}"


def _time(name: str, late: LateError, within: float | None) -> str:
    if within is not None and late.seconds == within:
        return f"{late.seconds:g} seconds, the time of a tick"
    return f"{late.seconds:g} seconds ({_setting(name, late)})"


def _fix(name: str, late: LateError) -> str:
    return (
        "look for what does not answer: the catalog, the store, a network file system; or raise "
        f"{_setting(name, late)}."
    )
