"""Reads many tables, and observes what has changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from iceberg_maint.core.health.metrics import Measured
from iceberg_maint.core.model.ids import (
    DATA_OPERATIONS,
    TableId,
)
from iceberg_maint.errors import IcebergMaintError, UnknownTableError, with_code
from iceberg_maint.loop.assess import Assessment, assess
from iceberg_maint.loop.context import Context
from iceberg_maint.loop.fleet.catalogs import late_table
from iceberg_maint.loop.fleet.known_tables import (
    IN_MEMORY,
    UnchangedTable,
    is_unchanged,
    load_unchanged,
    pointer_questions,
)
from iceberg_maint.loop.fleet.stored_decisions import decisions_of
from iceberg_maint.loop.read_table import (
    TableReading,
    is_large,
    is_of_catalog,
    measure_reading,
    note_unreadable,
    read_table,
)
from iceberg_maint.machine.bounded_calls import BoundedCalls, CallGroup, CallLimits, LateError
from iceberg_maint.ports.observers import NO_TELEMETRY, Observation
from iceberg_maint.ports.stored import StoredMeasurement

T = TypeVar("T")

TableAnswer = UnchangedTable | TableReading | IcebergMaintError
"""What a reading gives of a table. A reading without a measurement is one that the engine has to measure."""

_CHUNK = 500
"""Tables whose stored health is in memory at a time."""
_MOST_FAILED = 3
"""Calls in a row for which the whole catalog fails. Then no further one is made."""


class _Key(NamedTuple):
    """A call: on one table, or for the pointers of all `tables` of a catalog."""

    step: str
    catalog: str
    tables: tuple[TableId, ...]


_POINTER, _READ, _MEASURE = "pointer", "read", "measure"


class FleetReading:
    """One reading of these tables. Iterating yields every table once, in the order in which they are done: with its stored
    measurement if it is unchanged, else as it is read, or with its error."""

    def __init__(self, tables: Sequence[TableId], context: Context) -> None:
        self._context = context
        self._installation = context.ledger.registry.installation()
        self._stored = {s.table: s for s in context.ledger.health.measurements(tables)}
        self._calls = BoundedCalls[_Key](context.catalogs.threads)
        self._groups: dict[str, CallGroup[_Key]] = {}
        self._large: dict[str, CallGroup[_Key]] = {}
        self._failed: dict[str, int] = {}
        self._unknown = [t for t in tables if t.catalog not in context.catalogs]
        by_catalog: dict[str, list[TableId]] = {}
        for table in tables:
            by_catalog.setdefault(table.catalog, []).append(table)
        for name, members in by_catalog.items():
            if name in context.catalogs:
                self._begin(name, members)

    def _begin(self, name: str, tables: Sequence[TableId]) -> None:
        limits = self._context.catalogs.limits_of(name) or IN_MEMORY
        self._groups[name] = self._calls.group(limits)
        self._large[name] = self._calls.group(CallLimits(1, limits.call_seconds, limits.all_seconds))
        known = [t for t in tables if t in self._stored]
        for members, question in pointer_questions(name, known, self._context):
            self._add(_POINTER, name, members, question)
        for table in tables:
            if table not in self._stored:
                self.read(table)

    def read(self, table: TableId) -> None:
        """Adds the reading of a table."""
        self._add(_READ, table.catalog, [table], partial(read_table, table, self._context))

    def _add(self, step: str, name: str, tables: Sequence[TableId], work: Any) -> None:
        self._groups[name].add(_Key(step, name, tuple(tables)), work)

    def __iter__(self) -> Iterator[tuple[TableId, StoredMeasurement | TableReading | IcebergMaintError]]:
        for table in self._unknown:
            try:
                self._context.catalogs.of(table)
            except UnknownTableError as error:
                yield table, error
        self._unknown = []
        for key, answer in self._calls:
            if isinstance(answer, LateError):
                for table in key.tables:
                    yield table, late_table(table, answer, self._context.catalogs.within_seconds)
                continue
            if isinstance(answer, Exception):
                yield from self._error(key, answer)
                continue
            self._failed[key.catalog] = 0
            if key.step == _POINTER:
                yield from self._compared(key.tables, answer)
            elif answer.measured is None and is_large(answer) and not answer.by_engine:
                self._large[key.catalog].add(
                    key._replace(step=_MEASURE), partial(measure_reading, answer, self._context)
                )
            else:
                yield key.tables[0], answer

    def _compared(
        self, tables: Iterable[TableId], pointers: Any
    ) -> Iterator[tuple[TableId, StoredMeasurement]]:
        for table in tables:
            stored = self._stored[table]
            if is_unchanged(stored, pointers.get(table), self._context, self._installation):
                yield table, stored
            else:
                self.read(table)

    def _error(self, key: _Key, cause: Exception) -> Iterator[tuple[TableId, IcebergMaintError]]:
        error = with_code(cause)
        if key.step == _POINTER and len(key.tables) > 1:
            # The reading of each table says what is wrong.
            for table in key.tables:
                self.read(table)
            return
        yield from ((table, error) for table in key.tables)
        if not is_of_catalog(error):
            self._failed[key.catalog] = 0
            return
        self._failed[key.catalog] = self._failed.get(key.catalog, 0) + 1
        if self._failed[key.catalog] >= _MOST_FAILED:
            for dropped in self._groups[key.catalog].drop_waiting():
                yield from ((table, error) for table in dropped.tables)


def read_tables(
    tables: Sequence[TableId], context: Context, *, observe: bool, histories: bool = True
) -> Iterator[tuple[TableId, TableAnswer]]:
    """Yields every table once, in the order in which they are done. With `observe` the reading counts as an observation of
    unchanged tables. Without `histories` nothing is decided."""
    fleet, unchanged = FleetReading(tables, context), list[StoredMeasurement]()

    def load() -> Iterator[tuple[TableId, TableAnswer]]:
        for table, loaded in load_unchanged(unchanged, context, observe=observe, histories=histories):
            if loaded is None:
                fleet.read(table)
            else:
                yield table, loaded
        unchanged.clear()

    while True:
        for table, found in fleet:
            if isinstance(found, IcebergMaintError):
                note_unreadable(table, found, context)
            if not isinstance(found, StoredMeasurement):
                yield table, found
                continue
            unchanged.append(found)
            if len(unchanged) == _CHUNK:
                yield from load()
        if not unchanged:
            return
        yield from load()


def in_order(tables: Sequence[TableId], done: Iterable[tuple[TableId, T]]) -> Iterator[tuple[TableId, T]]:
    """Yields the tables in their order, each as soon as it and those before it are done."""
    waiting: dict[TableId, T] = {}
    following = iter(tables)
    table = next(following, None)
    for name, result in done:
        waiting[name] = result
        while table is not None and table in waiting:
            yield table, waiting.pop(table)
            table = next(following, None)


def observe_tables(
    tables: Sequence[TableId], context: Context
) -> Iterator[tuple[TableId, Measured | IcebergMaintError]]:
    """Yields every table in order, with its health or with the error of its reading. Health is stored as soon as a table is
    read. Decisions are made for the receivers of telemetry only."""
    return in_order(tables, _observed(tables, context))


def _observed(
    tables: Sequence[TableId], context: Context
) -> Iterator[tuple[TableId, Measured | IcebergMaintError]]:
    reports = context.observers.telemetry is not NO_TELEMETRY
    for table, answer in read_tables(tables, context, observe=True, histories=reports):
        try:
            yield table, _observe(table, answer, context, reports=reports)
        except Exception as error:  # noqa: BLE001 - one table must not stop the others
            yield table, with_code(error)


def _observe(
    table: TableId, answer: TableAnswer, context: Context, *, reports: bool
) -> Measured | IcebergMaintError:
    if isinstance(answer, IcebergMaintError):
        return answer
    if isinstance(answer, UnchangedTable):
        report_unchanged(answer, context)
        return answer.measured
    assessment = assess(table, context, DATA_OPERATIONS if reports else (), reading=answer)
    report_observed(assessment, context)
    return assessment.measured


def report_observed(assessment: Assessment, context: Context) -> None:
    """Reports the numbers of a table that was measured just now."""
    context.observers.telemetry.table_observed(
        Observation(assessment.measured, context.clock.now_ms(), assessment.decisions, assessment.histories)
    )


def report_unchanged(unchanged: UnchangedTable, context: Context) -> None:
    """Reports the stored numbers of a table that has not changed since, with the decisions that follow now."""
    if context.observers.telemetry is NO_TELEMETRY:
        return
    measured, now_ms = unchanged.measured, context.clock.now_ms()
    policy = context.policies.of_table(measured.table, measured.maintenance_properties)
    decisions = decisions_of(measured, policy, unchanged.histories, now_ms, context.engine.row_types)
    context.observers.telemetry.table_observed(
        Observation(measured, now_ms, decisions, tuple(unchanged.histories.values()))
    )
